"""The classes in Spark's parsed queries, each reviewed: the allowed ones, and the refused ones.

A class in neither list is refused. A test compares both lists with the classes that the installed Spark's parser makes.
"""

from collections.abc import Mapping
from typing import Final

_CATALYST: Final = "org.apache.spark.sql.catalyst"


def _of(package: str, names: str) -> frozenset[str]:
    return frozenset(f"{package}.{name}" for name in names.split())


PLANS: Final = (
    _of(
        f"{_CATALYST}.analysis",
        """
        UnresolvedHaving UnresolvedInlineTable UnresolvedQualify UnresolvedRelation UnresolvedSubqueryColumnAliases
        UnresolvedTVFAliases UnresolvedTableValuedFunction
        """,
    )
    | _of(f"{_CATALYST}.expressions", "PipeOperator")
    | _of(
        f"{_CATALYST}.plans.logical",
        """
        Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit
        Offset OneRowRelation Pivot Project RepartitionByExpression Sample Sort SubqueryAlias Union UnresolvedHint
        UnresolvedWith Unpivot WithWindowDefinition
        """,
    )
)
"""The allowed plans, that is, operators on rows."""

EXPRESSIONS: Final = (
    _of(
        f"{_CATALYST}.analysis",
        """
        MultiAlias UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator
        UnresolvedOrdinal UnresolvedPipeAggregateOrdinal UnresolvedStar UnresolvedStarExceptOrReplace
        """,
    )
    | _of(
        f"{_CATALYST}.expressions",
        """
        Add Alias And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Coalesce Collate Concat
        CreateNamedStruct Cube CurrentDate CurrentRow$ CurrentTime CurrentTimestamp Divide EqualNullSafe EqualTo
        Exists GreaterThan GreaterThanOrEqual GroupingSets Hex ILike In InSubquery IntegralDivide IsNotNull IsNull
        JsonTable LambdaFunction LateralSubquery LessThan LessThanOrEqual Like LikeAll LikeAny ListQuery Literal Lower
        Multiply NamePlaceholder$ NamedArgumentExpression Not NotLikeAll NotLikeAny Or Overlay PipeExpression RLike
        Remainder Rollup ScalarSubquery SemiStructuredExtract ShiftLeft ShiftRight ShiftRightUnsigned SortOrder
        SpecifiedWindowFrame StringLocate StringTrim StringTrimLeft StringTrimRight Substring Subtract TimestampAdd
        TimestampDiff UnaryMinus UnaryPositive UnboundedFollowing$ UnboundedPreceding$ Unnest UnresolvedCollation
        UnresolvedNamedLambdaVariable UnresolvedWindowExpression UnspecifiedFrame$ WindowExpression
        WindowSpecDefinition
        """,
    )
    | _of(f"{_CATALYST}.expressions.aggregate", "AggregateExpression AnyValue First Last")
)
"""The allowed expressions."""

SUBQUERIES: Final = _of(f"{_CATALYST}.expressions", "Exists InSubquery LateralSubquery ListQuery ScalarSubquery")
"""The expressions that read other rows than the current one."""

_TYPES: Final = """
    ArrayType BinaryType$ BooleanType$ ByteType$ CalendarIntervalType$ CharType DateType$ DayTimeIntervalType
    DecimalType DoubleType$ FloatType$ GeographyType GeometryType IntegerType$ LongType$ MapType NullType$ ShortType$
    StringType StringType$ StructField StructType TimeType TimestampLTZNanosType TimestampNTZNanosType TimestampNTZType$
    TimestampType$ VarcharType VariantType$ YearMonthIntervalType
"""

PLAIN: Final = (
    _of("java.lang", "Boolean Byte Character Double Float Integer Long Short String")
    | _of("java.math", "BigDecimal BigInteger")
    | _of("java.util", "UUID")
    | _of("org.apache.spark.sql.types", f"Decimal Metadata {_TYPES}")
    | _of("org.apache.spark.unsafe.types", "CalendarInterval UTF8String")
    | _of("scala", "Enumeration$Val None$ Some Tuple2 Tuple3 Tuple4 Tuple5")
    | _of("scala.math", "BigDecimal BigInt")
    | _of("scala.runtime", "BoxedUnit")
    | _of(_CATALYST, "AliasIdentifier FunctionIdentifier")
    | _of(f"{_CATALYST}.trees", "TreeNodeTag")
    | _of(
        f"{_CATALYST}.expressions",
        """
        Ascending$ Descending$ ExprId JsonTableColumn JsonTableColumnKind$Exists$ JsonTableColumnKind$Ordinality$
        JsonTableColumnKind$Value$ JsonTableErrorMode$ErrorOnError$ JsonTableErrorMode$NullOnError$ NullsFirst$
        NullsLast$ NumericEvalContext RangeFrame$ RowFrame$ WindowSpecReference
        """,
    )
    | _of(f"{_CATALYST}.expressions.aggregate", "Complete$")
    | _of(f"{_CATALYST}.expressions.json", "PathInstruction$Named")
    | _of(
        f"{_CATALYST}.plans",
        """
        Cross$ FullOuter$ GreaterThanOp$ GreaterThanOrEqualOp$ Inner$ LeftAnti$ LeftOuter$ LeftSemi$ LessThanOp$
        LessThanOrEqualOp$ NaturalJoin RightOuter$ UsingJoin
        """,
    )
    | _of(f"{_CATALYST}.plans.logical", "JoinHint SampleMethod$Bernoulli$ SampleMethod$System$")
    | frozenset({"null", "[B"})
)
"""The allowed classes of objects that are neither nodes nor sequences: values, types, names, joins, frames."""

SEQUENCES: Final = ("scala.collection.", "java.util.", "[L", "org.apache.spark.sql.util.CaseInsensitiveStringMap")
"""Prefixes of the classes of sequences and maps. Any such class is allowed, because its elements are checked."""

_NO_QUERY: Final = "it is a statement, and no query"
_PARAMETER: Final = "there are no values for parameters"
_IDENTIFIER: Final = "a name made by IDENTIFIER cannot be checked: write the name"
_STREAM: Final = "a batch of rows is no stream"
_UNSEEN: Final = "it is new in this version of Spark, and was not reviewed yet"
_VERSIONS: Final = "a view has no versions"

REFUSED: Final[Mapping[str, str]] = {
    "ScriptTransformation": "TRANSFORM, MAP or REDUCE ... USING runs a program",
    "InsertIntoDir": "INSERT writes files",
    **dict.fromkeys(("RelationTimeTravel", "RelationChanges"), _VERSIONS),
    **dict.fromkeys(("PlanWithUnresolvedIdentifier", "ExpressionWithUnresolvedIdentifier"), _IDENTIFIER),
    **dict.fromkeys(("NamedStreamingRelation", "UnresolvedEventTimeWatermark"), _STREAM),
    **dict.fromkeys(("NamedParameter", "PosParameter"), _PARAMETER),
    **dict.fromkeys(("AsOfJoin", "NearestByJoin", "UnresolvedBinBy"), _UNSEEN),
    "UnresolvedExecuteImmediate": "EXECUTE IMMEDIATE runs a text that cannot be checked",
    "CurrentUser": "it tells which user the member runs as",
    "CurrentPath": "a task has views, and no catalog",
    "FunctionTableSubqueryArgumentExpression": "no function takes a table",
    "UnresolvedRegex": "name the columns",
    "AttributeReference": "a column is named, not referred to",
    **dict.fromkeys(
        """
        CurrentNamespace UnresolvedFunctionName UnresolvedIdentifier UnresolvedInsertTarget UnresolvedNamespace
        UnresolvedProcedure UnresolvedTable UnresolvedTableOrView UnresolvedView

        AddCheckConstraint AddColumns AddConstraint AddPartitions AlterColumns AlterTableClusterBy AlterTableCollation
        AlterViewAs AlterViewSchemaBinding AnalyzeColumn AnalyzeTable AnalyzeTables AutoCdcInto CacheTable
        CacheTableAsSelect Call CloseCursor CommentOnNamespace CommentOnTable CompoundBody CreateFlowCommand
        CreateFunction CreateIndex CreateMaterializedViewAsSelect CreateNamespace CreateStreamingTable
        CreateStreamingTableAsSelect CreateStreamingTableAutoCdc CreateTable CreateTableAsSelect CreateTableLike
        CreateUserDefinedFunction CreateVariable CreateView DeclareCursor DeleteFromTable DescribeColumn
        DescribeFunction DescribeNamespace DescribeRelation DescribeTablePartition DropColumns DropConstraint
        DropFunction DropIndex DropNamespace DropPartitions DropTable DropVariable DropView ErrorCondition
        ExceptionHandler FetchCursor ForStatement IfElseStatement InsertIntoStatement IterateStatement LeaveStatement
        LoadData LoopStatement MergeIntoTable OpenCursor RecoverPartitions RefreshFunction RefreshTable RenameColumn
        RenamePartitions RenameTable RepairTable RepeatStatement ReplaceColumns ReplaceTable ReplaceTableAsSelect
        SearchedCaseStatement SetCatalogAndNamespace SetNamespaceLocation SetNamespaceProperties SetTableLocation
        SetTableProperties SetTableSerDeProperties SetVariable SetViewProperties ShowColumns ShowCreateTable
        ShowFunctions ShowPartitions ShowTablePartition ShowTableProperties ShowTables ShowTablesExtended ShowViews
        SimpleCaseStatement SingleStatement TruncatePartition TruncateTable UncacheTable UnresolvedInsert
        UnsetTableProperties UnsetViewProperties UpdateTable WhileStatement

        AddArchivesCommand AddFilesCommand AddJarsCommand ClearCacheCommand CreateFunctionCommand
        CreateViewCommand DescribeProcedureCommand DescribeQueryCommand DescribeRelationJsonCommand DropFunctionCommand
        ExplainCommand ListArchivesCommand ListFilesCommand ListJarsCommand ResetCommand SetCatalogCommand SetCommand
        SetNamespaceCollationCommand SetNamespaceCommand SetPathCommand ShowCatalogsCommand ShowCollationsCommand
        ShowCurrentNamespaceCommand ShowNamespacesCommand ShowPartitionsJsonCommand ShowProceduresCommand
        ShowTablesJsonCommand UnsetNamespacePropertiesCommand CreateTempViewUsing RefreshResource CreateMetricView

        UnresolvedFieldName UnresolvedFieldPosition UnresolvedPartitionSpec CheckConstraint ForeignKeyConstraint
        PrimaryKeyConstraint UniqueConstraint UnresolvedCursor AlterColumnSpec Assignment ColumnDefinition
        DefaultValueExpression DeleteAction GeneratedColumnExpression InsertAction InsertReplaceOn InsertReplaceUsing
        InsertReplaceWhere InsertStarAction OptionList QualifiedColType UnresolvedTableSpec UpdateAction
        UpdateStarAction
        """.split(),
        _NO_QUERY,
    ),
}
"""The known nodes that are refused, by the class's own name, and why."""
