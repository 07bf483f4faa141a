"""Spark's functions, each reviewed. Allowed functions use only their arguments, the time and random numbers.

A function in neither list is refused. A test compares both lists with the functions of the installed Spark.
"""

from collections.abc import Mapping
from typing import Final

ALLOWED: Final = frozenset(
    """
    ! % & * + - / < << <= <=> = == > >= >> >>> ^ | ~ and between div in like ilike not or regexp regexp_like rlike
    equal_null isnan isnotnull isnull

    abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees e exp expm1
    factorial floor greatest hex hypot least ln log log10 log1p log2 mod negative pi pmod positive pow power radians
    rand randn random rint round sec sign signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply
    try_subtract unhex uniform width_bucket
    bit_count bit_get getbit shiftleft shiftright shiftrightunsigned

    coalesce if ifnull nanvl nullif nullifzero nvl nvl2 when zeroifnull
    bigint binary boolean cast date decimal double float int smallint string time timestamp tinyint

    ascii base64 bit_length btrim char char_length character_length chr collate collation concat_ws contains decode elt
    encode endswith find_in_set format_number format_string from_base32 initcap instr is_valid_utf8
    jaro_winkler_similarity lcase left len length levenshtein locate lower lpad ltrim luhn_check make_valid_utf8 mask
    octet_length overlay position printf quote randstr regexp_count regexp_extract regexp_extract_all regexp_instr
    regexp_replace regexp_substr repeat replace right rpad rtrim sentences soundex space split split_part startswith
    substr substring substring_index to_base32 to_binary to_char to_number to_varchar translate trim try_to_binary
    try_to_number try_validate_utf8 ucase unbase64 upper validate_utf8
    parse_url try_parse_url try_url_decode url_decode url_encode

    add_months convert_timezone curdate current_date current_time current_timestamp current_timezone date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
    dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day localtime localtimestamp make_date
    make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval
    minute month monthname months_between next_day now quarter second session_window time_bucket time_diff
    time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc
    timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds to_date to_time to_timestamp to_timestamp_ltz
    to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc try_make_interval try_make_timestamp
    try_make_timestamp_ltz try_make_timestamp_ntz try_to_date try_to_time try_to_timestamp unix_date unix_micros
    unix_millis unix_nanos unix_seconds unix_timestamp weekday weekofyear window window_time year

    array array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
    array_max array_min array_position array_prepend array_remove array_repeat array_size array_union arrays_overlap
    arrays_zip flatten get sequence shuffle slice sort_array
    cardinality concat element_at reverse size try_element_at named_struct struct
    map map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values str_to_map
    aggregate array_sort exists filter forall map_filter map_zip_with reduce transform transform_keys transform_values
    zip_with
    explode explode_outer inline inline_outer posexplode posexplode_outer stack

    from_json get_json_object json_array_length json_object_keys json_tuple schema_of_json to_json
    from_csv schema_of_csv to_csv
    is_valid_variant is_variant_null parse_json schema_of_variant schema_of_variant_agg to_variant_object try_parse_json
    try_variant_array_append try_variant_get try_variant_insert try_variant_set variant_array_append variant_delete
    variant_get variant_insert variant_set variant_strip_nulls

    crc32 hash md5 sha sha1 sha2 xxhash64 aes_decrypt aes_encrypt hmac try_aes_decrypt
    assert_true raise_error monotonically_increasing_id spark_partition_id typeof uuid
    bitmap_bit_position bitmap_bucket_number bitmap_count

    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine
    approx_top_k_estimate array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg
    bool_and bool_or collect_list collect_set collect_union corr count count_if count_min_sketch covar_pop covar_samp
    every first first_value grouping grouping_id histogram_numeric kurtosis last last_value listagg max max_by mean
    median min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp
    string_agg sum try_avg try_sum var_pop var_samp variance
    counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number

    hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg
    kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double
    kll_sketch_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float
    kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double kll_sketch_get_quantile_float
    kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint
    kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double
    kll_sketch_to_string_float
    theta_difference theta_intersection theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union
    theta_union_agg
    tuple_difference_double tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_intersection_double tuple_intersection_integer
    tuple_intersection_theta_double tuple_intersection_theta_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double tuple_sketch_summary_integer
    tuple_sketch_theta_double tuple_sketch_theta_integer tuple_union_agg_double tuple_union_agg_integer
    tuple_union_double tuple_union_integer tuple_union_theta_double tuple_union_theta_integer

    st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid
    vector_avg vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum
    """.split()
)

_CALLS_THE_JVM: Final = "it calls any static method of the JVM"
_XML_FILES: Final = "its options name schemas and entities, which are files and URLs"
_XPATH: Final = "it parses a document that may name files and URLs as entities"
_OTHER_FORMATS: Final = "its code is no part of Spark's own, and is looked up by a class's name"
_USER: Final = "it tells which user the member runs as"
_CATALOG: Final = "a task has views, and no catalog"
_FILES: Final = "it tells where the member keeps the files that it reads"

REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("reflect", "java_method", "try_reflect"), _CALLS_THE_JVM),
    **dict.fromkeys(("from_xml", "schema_of_xml", "to_xml"), _XML_FILES),
    **dict.fromkeys(
        (
            *("xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_number"),
            *("xpath_short", "xpath_string"),
        ),
        _XPATH,
    ),
    **dict.fromkeys(("from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf"), _OTHER_FORMATS),
    **dict.fromkeys(("current_user", "session_user", "user"), _USER),
    **dict.fromkeys(("current_catalog", "current_database", "current_path", "current_schema"), _CATALOG),
    **dict.fromkeys(("input_file_block_length", "input_file_block_start", "input_file_name"), _FILES),
    "measure": "it is for metric views, which are kept in a catalog",
    "version": "it tells which Spark the member has, and rows must not depend on that",
}
"""The known functions that are refused, and why."""

ALLOWED_TABLES: Final = frozenset(
    """
    collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range sql_keywords stack
    variant_explode variant_explode_outer
    """.split()
)
"""The allowed functions that return a table and are called in FROM."""

REFUSED_TABLES: Final[Mapping[str, str]] = {"python_worker_logs": "it reads what other work on this Spark has logged"}

TYPE_TEXTS: Final[Mapping[str, int]] = {"from_json": 1, "from_csv": 1, "variant_get": 2, "try_variant_get": 2}
"""The functions with an argument that is a type as text, and the number of that argument, from 0.

Spark takes such a text in SQL or in JSON, and in JSON it may name any class of the JVM, which Spark then instantiates.
"""

TYPE_MAKERS: Final = frozenset({"schema_of_json", "schema_of_csv"})
"""The functions that return a type as text, in SQL."""

HINTS: Final = frozenset(
    """
    broadcast broadcastjoin mapjoin merge mergejoin shuffle_merge shuffle_hash shuffle_replicate_nl
    coalesce rebalance repartition repartition_by_range
    """.split()
)
"""The hints that only change how a query is executed."""

CURRENT: Final[Mapping[str, str]] = {"CurrentUser": "user, current_user or session_user, and no column of that name"}
"""Functions that Spark also calls by a bare name, if no column has the name. By the function's class: its
names in SQL.
"""
