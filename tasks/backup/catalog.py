"""The query that tells what a PostgreSQL database defines: a hash of each object, and of its owner and grants.

Of two databases, of which one is the whole restored dump of the other, it tells the same. Therefore it leaves out what
a dump does not carry, and what a restore makes in another way: the order of columns, who has granted, tablespaces,
versions of extensions and what belongs to an extension, subscriptions. Options of user mappings may be secret.
"""

from typing import Final

NAMES_MAX: Final = 500
"""Of a schema with more objects of one kind only their number and a hash of all are told, not their names."""

VERSION_MIN: Final = 150_000
"""The first version of a server, as in `server_version_num`, whose catalog the query knows."""

GRANTS: Final = "owner and grants"
"""The kind under which the owner and the grants of an object stand."""


def _role(oid: str) -> str:
    return f"CASE WHEN {oid} = 0 THEN 'public' ELSE pg_get_userbyid({oid}) END"


def _listed(each: str, source: str, order: str = "") -> str:
    """Return SQL for a list as text, sorted by its texts, unless `order` says how."""
    by = order or f'({each}) COLLATE "C"'
    return f"(SELECT string_agg({each}, '; ' ORDER BY {by}) FROM {source})"


_COLUMNS: Final = _listed(
    "concat_ws(' ', quote_ident(a.attname), format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, "
    "a.attgenerated, a.attstorage, a.attcompression, l.collname, pg_get_expr(d.adbin, d.adrelid))",
    "pg_attribute a LEFT JOIN pg_collation l ON l.oid = a.attcollation LEFT JOIN pg_attrdef d "
    "ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum) WHERE a.attrelid = o.oid AND a.attnum > 0 AND NOT a.attisdropped",
)
_OWNER_OF_SEQUENCE: Final = _listed(
    "format('%s.%I', d.refobjid::regclass, a.attname)",
    "pg_depend d JOIN pg_attribute a ON (a.attrelid, a.attnum) = (d.refobjid, d.refobjsubid) WHERE d.objid = o.oid AND "
    "d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')",
)
_LABELS: Final = _listed("quote_literal(m.enumlabel)", "pg_enum m WHERE m.enumtypid = o.oid", "m.enumsortorder")
_ATTRIBUTES: Final = _listed(
    "concat_ws(' ', quote_ident(a.attname), format_type(a.atttypid, a.atttypmod))",
    "pg_attribute a WHERE a.attrelid = o.typrelid AND o.typrelid <> 0 AND NOT a.attisdropped",
    "a.attnum",
)
_MAPPED: Final = _listed(
    "concat_ws(' ', k.alias, m.mapseqno, m.mapdict::regdictionary)",
    "pg_ts_config_map m JOIN ts_token_type(o.cfgparser) k ON k.tokid = m.maptokentype WHERE m.mapcfg = o.oid",
)
_PUBLISHED: Final = _listed(
    "concat_ws(' ', r.prrelid::regclass, pg_get_expr(r.prqual, r.prrelid), r.prattrs)",
    "pg_publication_rel r WHERE r.prpubid = o.oid",
)
_PUBLISHED_SCHEMAS: Final = _listed(
    "s.pnnspid::regnamespace::text", "pg_publication_namespace s WHERE s.pnpubid = o.oid"
)

_OBJECTS: Final = f"""
SELECT 'pg_namespace'::regclass AS class, o.oid, 0 AS column_number, 0::oid AS table_oid, NULL AS kind,
o.nspowner AS owner, o.nspacl AS acl, 'n'::"char" AS acl_type, '' AS definition
FROM pg_namespace o WHERE o.nspname !~ '^pg_' AND o.nspname <> 'information_schema'
UNION ALL SELECT 'pg_class'::regclass, o.oid, 0, o.oid, NULL, o.relowner, o.relacl, 'r', concat_ws(' ',
o.relpersistence, o.relispopulated, o.relrowsecurity, o.relforcerowsecurity, o.relreplident,
{_listed("x", "unnest(o.reloptions) x")}, pg_get_expr(o.relpartbound, o.oid), {_COLUMNS},
{_listed("i.inhparent::regclass::text", "pg_inherits i WHERE i.inhrelid = o.oid", "i.inhseqno")},
CASE WHEN o.relkind IN ('v', 'm') THEN pg_get_viewdef(o.oid) WHEN o.relkind = 'p' THEN pg_get_partkeydef(o.oid) END,
(SELECT s.srvname FROM pg_foreign_table f JOIN pg_foreign_server s ON s.oid = f.ftserver WHERE f.ftrelid = o.oid))
FROM pg_class o WHERE o.relkind IN ('r', 'p', 'v', 'm', 'f')
UNION ALL SELECT 'pg_class'::regclass, o.attrelid, o.attnum, o.attrelid, NULL, NULL, o.attacl, 'c', NULL
FROM pg_attribute o WHERE o.attacl IS NOT NULL AND NOT o.attisdropped
UNION ALL SELECT 'pg_class'::regclass, o.oid, 0, o.oid, NULL, o.relowner, o.relacl, 's', concat_ws(' ',
format_type(s.seqtypid, NULL), s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle,
{_OWNER_OF_SEQUENCE}) FROM pg_class o JOIN pg_sequence s ON s.seqrelid = o.oid
UNION ALL SELECT 'pg_class'::regclass, i.indexrelid, 0, i.indrelid, NULL, NULL, NULL, NULL,
concat_ws(' ', pg_get_indexdef(i.indexrelid), i.indisclustered, i.indisreplident)
FROM pg_index i JOIN pg_class o ON o.oid = i.indexrelid WHERE i.indisready AND (i.indisvalid OR o.relkind = 'I')
UNION ALL SELECT 'pg_constraint'::regclass, o.oid, 0, o.conrelid, NULL, NULL, NULL, NULL, pg_get_constraintdef(o.oid)
FROM pg_constraint o WHERE o.contype NOT IN ('t', 'n') AND o.conparentid = 0
UNION ALL SELECT 'pg_trigger'::regclass, o.oid, 0, o.tgrelid, NULL, NULL, NULL, NULL,
concat_ws(' ', pg_get_triggerdef(o.oid), o.tgenabled) FROM pg_trigger o WHERE NOT o.tgisinternal AND o.tgparentid = 0
UNION ALL SELECT 'pg_rewrite'::regclass, o.oid, 0, o.ev_class, NULL, NULL, NULL, NULL,
concat_ws(' ', pg_get_ruledef(o.oid), o.ev_enabled) FROM pg_rewrite o WHERE o.rulename <> '_RETURN'
UNION ALL SELECT 'pg_policy'::regclass, o.oid, 0, o.polrelid, NULL, NULL, NULL, NULL, concat_ws(' ', o.polcmd,
o.polpermissive, {_listed(_role("r"), "unnest(o.polroles) r")}, pg_get_expr(o.polqual, o.polrelid),
pg_get_expr(o.polwithcheck, o.polrelid)) FROM pg_policy o
UNION ALL SELECT 'pg_statistic_ext'::regclass, o.oid, 0, o.stxrelid, NULL, o.stxowner, NULL, NULL,
pg_get_statisticsobjdef(o.oid) FROM pg_statistic_ext o
UNION ALL SELECT 'pg_proc'::regclass, o.oid, 0, 0, NULL, o.proowner, o.proacl, 'f', coalesce(
CASE WHEN o.prokind <> 'a' THEN pg_get_functiondef(o.oid) END, (SELECT concat_ws(' ', g.aggkind, g.aggtransfn,
g.aggfinalfn, g.aggcombinefn, g.aggmtransfn, format_type(g.aggtranstype, NULL), g.agginitval) FROM pg_aggregate g
WHERE g.aggfnoid = o.oid)) FROM pg_proc o
UNION ALL SELECT 'pg_type'::regclass, o.oid, 0, 0, NULL, o.typowner, o.typacl, 'T', concat_ws(' ', o.typtype,
o.typnotnull, o.typdefault, o.typlen, o.typinput::regproc, format_type(nullif(o.typbasetype, 0), o.typtypmod),
{_LABELS}, {_ATTRIBUTES}, (SELECT concat_ws(' ', format_type(r.rngsubtype, NULL), r.rngcanonical, r.rngsubdiff)
FROM pg_range r WHERE r.rngtypid = o.oid)) FROM pg_type o LEFT JOIN pg_class c ON c.oid = o.typrelid
WHERE o.typtype <> 'm' AND coalesce(c.relkind, 'c') = 'c'
AND NOT EXISTS (SELECT FROM pg_type e WHERE e.typarray = o.oid)
UNION ALL SELECT 'pg_operator'::regclass, o.oid, 0, 0, NULL, o.oprowner, NULL, NULL, concat_ws(' ', o.oprcode,
o.oprrest, o.oprjoin, o.oprcanmerge, o.oprcanhash) FROM pg_operator o WHERE o.oprcode <> 0
UNION ALL SELECT 'pg_opclass'::regclass, o.oid, 0, 0, NULL, o.opcowner, NULL, NULL, concat_ws(' ', o.opcdefault,
format_type(o.opcintype, NULL)) FROM pg_opclass o
UNION ALL SELECT 'pg_opfamily'::regclass, o.oid, 0, 0, NULL, o.opfowner, NULL, NULL, '' FROM pg_opfamily o
UNION ALL SELECT 'pg_am'::regclass, o.oid, 0, 0, NULL, NULL, NULL, NULL, o.amhandler::text FROM pg_am o
UNION ALL SELECT 'pg_cast'::regclass, o.oid, 0, 0, NULL, NULL, NULL, NULL, concat_ws(' ', o.castcontext, o.castmethod,
nullif(o.castfunc, 0)::regprocedure) FROM pg_cast o
UNION ALL SELECT 'pg_collation'::regclass, o.oid, 0, 0, NULL, o.collowner, NULL, NULL, concat_ws(' ', o.collprovider,
o.collisdeterministic) FROM pg_collation o
UNION ALL SELECT 'pg_conversion'::regclass, o.oid, 0, 0, NULL, o.conowner, NULL, NULL, o.conproc::text
FROM pg_conversion o
UNION ALL SELECT 'pg_ts_config'::regclass, o.oid, 0, 0, NULL, o.cfgowner, NULL, NULL, {_MAPPED} FROM pg_ts_config o
UNION ALL SELECT 'pg_ts_dict'::regclass, o.oid, 0, 0, NULL, o.dictowner, NULL, NULL, o.dictinitoption FROM pg_ts_dict o
UNION ALL SELECT 'pg_ts_parser'::regclass, o.oid, 0, 0, NULL, NULL, NULL, NULL, o.prsstart::text FROM pg_ts_parser o
UNION ALL SELECT 'pg_ts_template'::regclass, o.oid, 0, 0, NULL, NULL, NULL, NULL, o.tmpllexize::text
FROM pg_ts_template o
UNION ALL SELECT 'pg_language'::regclass, o.oid, 0, 0, NULL, o.lanowner, o.lanacl, 'l', '' FROM pg_language o
UNION ALL SELECT 'pg_transform'::regclass, o.oid, 0, 0, NULL, NULL, NULL, NULL, '' FROM pg_transform o
UNION ALL SELECT 'pg_extension'::regclass, o.oid, 0, 0, NULL, NULL, NULL, NULL, o.extnamespace::regnamespace::text
FROM pg_extension o WHERE o.extname <> 'plpgsql'
UNION ALL SELECT 'pg_foreign_data_wrapper'::regclass, o.oid, 0, 0, NULL, o.fdwowner, o.fdwacl, 'F', ''
FROM pg_foreign_data_wrapper o
UNION ALL SELECT 'pg_foreign_server'::regclass, o.oid, 0, 0, NULL, o.srvowner, o.srvacl, 'S', ''
FROM pg_foreign_server o
UNION ALL SELECT 'pg_user_mapping'::regclass, o.umid, 0, 0, NULL, NULL, NULL, NULL, '' FROM pg_user_mappings o
UNION ALL SELECT 'pg_event_trigger'::regclass, o.oid, 0, 0, NULL, o.evtowner, NULL, NULL, concat_ws(' ', o.evtevent,
o.evtfoid::regproc, o.evtenabled, o.evttags) FROM pg_event_trigger o
UNION ALL SELECT 'pg_publication'::regclass, o.oid, 0, 0, NULL, o.pubowner, NULL, NULL, concat_ws(' ', o.puballtables,
o.pubinsert, o.pubupdate, o.pubdelete, o.pubtruncate, o.pubviaroot, {_PUBLISHED}, {_PUBLISHED_SCHEMAS})
FROM pg_publication o
UNION ALL SELECT 'pg_default_acl'::regclass, o.oid, 0, 0, NULL, NULL, o.defaclacl, NULL, NULL FROM pg_default_acl o
UNION ALL SELECT 'pg_largeobject'::regclass, o.oid, 0, 0, NULL, o.lomowner, o.lomacl, 'L', NULL
FROM pg_largeobject_metadata o
UNION ALL SELECT o.classoid, o.objoid, o.objsubid, 0, 'comment', NULL, NULL, NULL, o.description FROM pg_description o
"""
"""A row for each object: where it is in the catalogs, the table that it belongs to, its `kind` if that is not the type
that the server gives it, its owner and grants, and its definition, which is null if only these are compared."""

_GRANTS: Final = f"""concat_ws(' ', {_role("o.owner")}, {_listed(
    f"concat_ws(' ', {_role('x.grantee')}, x.privilege_type, x.is_grantable)",
    "aclexplode(coalesce(o.acl, acldefault(o.acl_type, o.owner))) x")})"""  # fmt: skip

CATALOG: Final = f"""WITH objects AS NOT MATERIALIZED ({_OBJECTS}), named AS (
SELECT o.*, i.type, coalesce(i.schema, '') AS schema, i.identity FROM objects o
CROSS JOIN LATERAL pg_identify_object(o.class, o.oid, o.column_number) i LEFT JOIN pg_class t ON t.oid = o.table_oid
WHERE (o.oid >= 16384 OR o.class = 'pg_namespace'::regclass AND o.kind IS NULL OR o.class = 'pg_largeobject'::regclass)
AND i.identity IS NOT NULL AND coalesce(i.schema, '') !~ '^pg_(temp|toast)' AND t.relpersistence IS DISTINCT FROM 't'
AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.deptype = 'e' AND e.classid = o.class AND e.objid = o.oid)
AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.deptype = 'e' AND e.classid = 'pg_class'::regclass
AND e.objid = o.table_oid)), hashed AS (
SELECT s.kind, o.schema, s.name, hashtextextended(s.definition COLLATE "C", 0) AS hash
FROM named o CROSS JOIN LATERAL (VALUES
(coalesce(o.kind, o.type), CASE WHEN o.kind IS NULL THEN o.identity ELSE o.type || ' ' || o.identity END, o.definition),
('{GRANTS}', o.type || ' ' || o.identity, CASE WHEN o.owner IS NOT NULL OR o.acl IS NOT NULL THEN {_GRANTS} END)
) s (kind, name, definition) WHERE s.definition IS NOT NULL)
SELECT json_build_object('kind', kind, 'schema_name', schema, 'count', count(*), 'hash', sum(hash)::text, 'names',
CASE WHEN count(*) <= {NAMES_MAX} THEN json_object_agg(name, to_hex(hash & 4294967295) ORDER BY name COLLATE "C") END)
FROM hashed GROUP BY kind, schema ORDER BY kind COLLATE "C", schema COLLATE "C";
"""
"""Returns a row of JSON for each kind of object in each schema (`tasks.backup.manifest.CatalogFacts`)."""
