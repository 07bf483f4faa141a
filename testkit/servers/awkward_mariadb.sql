CREATE DATABASE `größe x-y%` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'a comment';
USE `größe x-y%`;
CREATE TABLE `every type` (
  id bigint unsigned AUTO_INCREMENT PRIMARY KEY, b bit(5), b1 bit(1), t tinyint, big bigint unsigned, dec_ decimal(65,30),
  f float, d double, day date, at datetime(6), ts timestamp(6) NULL, y year, tm time(3),
  c char(4) CHARACTER SET latin1, v varchar(50), bin binary(4), vb varbinary(50), bl longblob, tx longtext,
  e enum('a','b,c','d''e'), s set('x','y'), j json, g geometry, p point, ip inet6, u uuid,
  gen int GENERATED ALWAYS AS (t * 2) STORED, vir varchar(60) GENERATED ALWAYS AS (concat(v, '!')) VIRTUAL,
  hid int INVISIBLE DEFAULT 7, CHECK (t < 100)
) COMMENT 'line one
line two; -- not a comment';
SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00';
INSERT INTO `every type` (id, b, b1, t, big, dec_, f, d, day, at, ts, y, tm, c, v, bin, vb, bl, tx, e, s, j, g, p, ip, u)
VALUES (0, b'10101', b'1', -128, 18446744073709551615, '12345678901234567890123456789012345.123456789012345678901234567891',
  1.5, 0.1, '0000-00-00', '0000-00-00', '1970-01-01 00:00:01.000001', 2155, '-838:59:59', 'äöü', 'tab\tnul\0cr\r\nq''"\\`',
  0x00ff0a0d, X'', 0xfffe00c328, 'é😀\n-- Dump completed\n', 'b,c', 'x,y', '{"a": [1, "\\u00e9"]}',
  ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))', 4326), POINT(1.5, -2), '2001:db8::1', '123e4567-e89b-12d3-a456-426614174000'),
  (5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (6, 0, 0, 0, 0, 0, -0.25, 2.2250738585072014e-308, '9999-12-31', '9999-12-31 23:59:59.999999', NULL, 0, '00:00:00.5',
  '', '', 'a', 'NULL', '', '', '', '', 'null', NULL, NULL, '::', '00000000-0000-0000-0000-000000000000');
CREATE TABLE parent (a int, b int, PRIMARY KEY (a, b)) ENGINE=InnoDB;
CREATE TABLE child (a int, b int, FOREIGN KEY (a, b) REFERENCES parent (a, b) ON DELETE CASCADE) ENGINE=InnoDB;
INSERT INTO parent VALUES (1, 1); INSERT INTO child VALUES (1, 1);
CREATE TABLE parted (id int PRIMARY KEY, v int) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10),
  PARTITION p1 VALUES LESS THAN MAXVALUE);
INSERT INTO parted SELECT seq, seq * 3 FROM seq_1_to_30;
CREATE TABLE `back``tick
newline` (`a``b
c` int); INSERT INTO `back``tick
newline` VALUES (1);
CREATE TABLE words (w text CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci, FULLTEXT (w)); INSERT INTO words VALUES ('größe');
CREATE TABLE old_engine (id int, v varchar(10)) ENGINE=MyISAM; INSERT INTO old_engine VALUES (1, 'x');
CREATE TABLE versioned (id int PRIMARY KEY, v int) WITH SYSTEM VERSIONING;
INSERT INTO versioned VALUES (1, 1); UPDATE versioned SET v = 2; DELETE FROM versioned; INSERT INTO versioned VALUES (2, 9);
CREATE SEQUENCE counter START WITH 5 INCREMENT BY 3 MAXVALUE 1000 CYCLE; SELECT NEXTVAL(counter) INTO @x;
CREATE TABLE edges (id int PRIMARY KEY, b bit(64), n decimal(65,0), small decimal(30,30), t time(6), at timestamp(6) NULL DEFAULT NULL
  ON UPDATE current_timestamp(6), c varchar(20) CHARACTER SET ucs2, bin varbinary(10) COMPRESSED, l linestring NOT NULL, ml multipoint,
  d double, un int(10) unsigned zerofill, e enum('','\\','ß'), x text DEFAULT (concat('a', 'é')), SPATIAL INDEX (l), UNIQUE (c));
INSERT INTO edges VALUES (-2147483648, ~0, repeat('9', 65), '-0.999999999999999999999999999999', '838:59:59.999999',
  '2038-01-19 03:14:07.999999', '\\', x'00', ST_LineFromText('LINESTRING(0 0,1e300 -1e-300)'), ST_MPointFromText('MULTIPOINT(1 2,3 4)'),
  -1.7976931348623157e308, 4294967295, 'ß', DEFAULT), (2147483647, 0, -repeat('9', 65), 0, '-00:00:00.000001', NULL, NULL, NULL,
  ST_LineFromText('LINESTRING(0 0,0 0)'), NULL, 2.2250738585072014e-308, 7, '', '\\N');
CREATE VIEW plain AS SELECT id, v FROM `every type`;
CREATE VIEW a_on_view AS SELECT id FROM plain WHERE id > 1;
CREATE DEFINER=gone@nowhere SQL SECURITY INVOKER VIEW orphan AS SELECT a FROM parent;
DELIMITER //
CREATE TRIGGER t1 BEFORE INSERT ON parted FOR EACH ROW BEGIN /* a comment */ SET NEW.v = NEW.v + 1; END//
CREATE DEFINER=gone@nowhere TRIGGER t2 AFTER DELETE ON parted FOR EACH ROW INSERT INTO words VALUES ('gone; it''s')//
CREATE PROCEDURE `with "quotes"` (IN x int, OUT y text CHARACTER SET utf8mb4) BEGIN
  -- Current Database: `mysql`
  # DELIMITER ;
  SET y = concat('é\n', x, ';;');
END//
CREATE DEFINER=gone@nowhere FUNCTION twice(x int) RETURNS int DETERMINISTIC RETURN x * 2//
CREATE EVENT nightly ON SCHEDULE EVERY 1 DAY STARTS '2030-01-01 00:00:00' DISABLE COMMENT 'c' DO BEGIN DELETE FROM words; END//
SET sql_mode = 'ORACLE'//
CREATE PACKAGE pack AS FUNCTION one RETURN int; END//
DELIMITER ;
