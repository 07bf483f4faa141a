-- Data and definitions that are easily restored as something else.
SET lc_monetary = 'C';
CREATE ROLE keeper; CREATE ROLE auditor;
CREATE SCHEMA "Ünïcode ""quoted""" AUTHORIZATION keeper;
CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION pg_trgm;
CREATE TYPE mood AS ENUM ('sad', 'it''s ok', '𝄞');
CREATE TYPE pair AS (a int, "b c" text);
CREATE TYPE span AS RANGE (subtype = float8);
CREATE DOMAIN positive AS numeric CHECK (VALUE > 0);
CREATE COLLATION folded FROM "C";
CREATE TABLE "Ünïcode ""quoted"""."таблица; -- DROP" (
  "id" bigint GENERATED ALWAYS AS IDENTITY (START WITH 100 INCREMENT BY 7) PRIMARY KEY,
  "столбец 'x'" text COLLATE folded, raw bytea, j jsonb, js json, m mood, ms mood[], grid int[][], low int[],
  p pair, ps pair[], s span, pos positive, price money, h hstore, c citext, x xml, u uuid, i inet, b bit varying,
  d date, t timetz, ts timestamptz, iv interval, f4 float4, f8 float8, n numeric, v tsvector, pt point, nl text,
  twice numeric GENERATED ALWAYS AS (n * 2) STORED
);
INSERT INTO "Ünïcode ""quoted"""."таблица; -- DROP" VALUES
  (DEFAULT, E'tab\tnewline\nback\\slash\r\x01', '\x00ff5c0a'::bytea, '{"a": [1, "\u00e4", null], "n": 1e400}', '{"b":1, "b":2}',
   '𝄞', '{sad,NULL,"it''s ok"}', '{{1,2},{3,4}}', '[-3:-1]={1,2,3}', ROW(1, 'x,"y"'), ARRAY[ROW(NULL, '')::pair],
   '[-infinity,1.5)', 0.1, '-1234.56', 'a=>"x\"y", b=>NULL', 'CiTeXt', '<a b="c">&lt;é</a>', gen_random_uuid(),
   '::1/64', B'1011', 'infinity', '23:59:59.999999+14', '4713-01-01 BC', '-1 year 2 mons -3 days 04:05:06.789',
   '1.17549435e-38', 'NaN', 'NaN', to_tsvector('english', 'rats and dogs'), '(1e300,-0)', NULL, DEFAULT),
  (DEFAULT, '', '', 'null', '[]', NULL, '{}', '{}', NULL, NULL, NULL, 'empty', NULL, NULL, '', '', '', NULL, '10.0.0.0/8', B'',
   '-infinity', '00:00', 'infinity', '178000000 years', '-0', '-Infinity', 123456789012345678901234567890.123456789, '', NULL,
   '\N', DEFAULT);
ALTER TABLE "Ünïcode ""quoted"""."таблица; -- DROP" OWNER TO keeper;
CREATE TABLE tree (id int PRIMARY KEY, parent int REFERENCES tree DEFERRABLE INITIALLY DEFERRED);
INSERT INTO tree VALUES (2, 1), (1, 2);
CREATE TABLE log (at timestamptz NOT NULL, who text, note text) PARTITION BY RANGE (at);
CREATE TABLE log_old PARTITION OF log FOR VALUES FROM (MINVALUE) TO ('2020-01-01') PARTITION BY HASH (who);
CREATE TABLE log_old_0 PARTITION OF log_old FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE log_old_1 PARTITION OF log_old FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE log_rest PARTITION OF log DEFAULT;
INSERT INTO log SELECT '2019-12-30'::timestamptz + n * interval '1 hour', 'w' || n, 'ü' FROM generate_series(1, 100) n;
CREATE INDEX ON log (who text_pattern_ops) WHERE note IS NOT NULL;
CREATE SEQUENCE counted INCREMENT BY -3 MAXVALUE 1000 START WITH 500 CYCLE; SELECT nextval('counted'), nextval('counted');
CREATE SEQUENCE untouched;
CREATE TABLE guarded (owner name DEFAULT current_user, secret text);
ALTER TABLE guarded ENABLE ROW LEVEL SECURITY; ALTER TABLE guarded FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON guarded FOR SELECT TO auditor USING (owner = current_user);
INSERT INTO guarded VALUES ('keeper', 'x'), ('auditor', 'y');
GRANT SELECT (owner), UPDATE (secret) ON guarded TO auditor WITH GRANT OPTION;
ALTER DEFAULT PRIVILEGES FOR ROLE keeper GRANT SELECT ON TABLES TO auditor;
CREATE FUNCTION noted() RETURNS event_trigger LANGUAGE plpgsql AS $f$ BEGIN RAISE DEBUG '$$ %', tg_tag; END $f$;
CREATE EVENT TRIGGER watch ON ddl_command_end EXECUTE FUNCTION noted();
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.note := ''stamped''; RETURN NEW; END';
CREATE TRIGGER stamped BEFORE INSERT ON log FOR EACH ROW EXECUTE FUNCTION stamp();
CREATE VIEW seen WITH (security_barrier) AS SELECT who FROM log WITH LOCAL CHECK OPTION;
CREATE MATERIALIZED VIEW per_day AS SELECT at::date, count(*) FROM log GROUP BY 1; CREATE UNIQUE INDEX ON per_day (at);
CREATE PUBLICATION chosen FOR TABLE tree WHERE (id > 1), log WITH (publish = 'insert', publish_via_partition_root);
CREATE STATISTICS of_log (dependencies) ON at, who FROM log;
CREATE RULE no_delete AS ON DELETE TO tree DO INSTEAD NOTHING;
COMMENT ON COLUMN log.note IS E'it''s\na "comment" \\ ;'; COMMENT ON DATABASE awkward IS 'of the database';
CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);
CREATE AGGREGATE total (numeric) (SFUNC = numeric_add, STYPE = numeric, INITCOND = '0');
CREATE UNLOGGED TABLE fleeting AS SELECT 1 AS n;
SELECT lo_from_bytea(424242, '\x00010203'), lo_from_bytea(0, convert_to(repeat('große Objekte', 200000), 'UTF8'));
ALTER LARGE OBJECT 424242 OWNER TO keeper; GRANT SELECT ON LARGE OBJECT 424242 TO auditor;
COMMENT ON LARGE OBJECT 424242 IS 'large';
-- Values at the ends of their types, and tables of unusual shapes.
CREATE TABLE edges (
  n int PRIMARY KEY, ts timestamp, tz timestamptz, d date, iv interval, num numeric, f4 float4, f8 float8, t text, raw bytea, a text[],
  i8 bigint, tm time, j jsonb, mr int4multirange, bits bit(64), c "char", lo name
);
INSERT INTO edges VALUES
  (1, '294276-12-31 23:59:59.999999', '294276-12-31 23:59:59.999999+00', '5874897-12-31', '178000000 years', repeat('9', 131072)::numeric,
   '3.4028235e38', '5e-324', U&'\+10FFFF', '', '{{NULL,NULL},{"",NULL}}', 9223372036854775807, '24:00', '"\\u0001"', '{}', repeat('1', 64)::bit(64),
   E'\\377', repeat('n', 63)),
  (2, '4713-11-24 00:00:00 BC', '4713-11-24 00:00:00+00 BC', '4714-11-24 BC', '-178000000 years -1 day -24:00:00.000001',
   ('0.' || repeat('0', 16382) || '1')::numeric, '1e-45', '-5e-324', E'\\.\n\\.', '\x', '{}', -9223372036854775808, '00:00', '{}',
   '{[1,3),[5,)}', repeat('0', 64)::bit(64), '', ''),
  (3, 'infinity', '-infinity', 'infinity', '0', 'Infinity', '-0', '-0', E'\n', decode(repeat('00', 100000), 'hex'), '[5:6][-1:0]={{a,b},{c,d}}', 0,
   '23:59:59.999999', '[[[[[]]]]]', '{(,)}', NULL, ' ', 'x'),
  (4, '-infinity', 'infinity', '-infinity', NULL, '-Infinity', 'Infinity', '-Infinity', repeat(E'\\.\n', 30000), NULL, NULL, NULL, NULL,
   ('"' || repeat('ß', 100000) || '"')::jsonb, NULL, NULL, NULL, NULL);
CREATE TABLE "no columns" (); INSERT INTO "no columns" DEFAULT VALUES; INSERT INTO "no columns" DEFAULT VALUES;
DO $$ BEGIN EXECUTE 'CREATE TABLE wide (' || (SELECT string_agg('c' || n || ' int', ', ') FROM generate_series(1, 1600) n) || ')'; END $$;
INSERT INTO wide (c1, c800, c1600) VALUES (1, NULL, 3), (NULL, 2, NULL);
CREATE TABLE dropped_one (a int, gone text, b text DEFAULT 'é'); INSERT INTO dropped_one VALUES (1, 'x', 'y');
ALTER TABLE dropped_one DROP COLUMN gone; ALTER TABLE dropped_one ADD COLUMN late int DEFAULT 7; INSERT INTO dropped_one VALUES (2);
CREATE TABLE above (a int, b text); CREATE TABLE below (c int) INHERITS (above);
INSERT INTO above VALUES (1, 'above'); INSERT INTO below VALUES (2, 'below', 3), (4, 'below', 5);
CREATE TABLE ended (id smallint GENERATED BY DEFAULT AS IDENTITY (MAXVALUE 3)); INSERT INTO ended DEFAULT VALUES;
INSERT INTO ended DEFAULT VALUES; INSERT INTO ended DEFAULT VALUES;
CREATE TEMPORARY TABLE passing AS SELECT 1 AS n;
