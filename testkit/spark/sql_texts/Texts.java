package rota.sql;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.antlr.v4.runtime.Token;
import org.antlr.v4.runtime.atn.ATN;
import org.antlr.v4.runtime.atn.ATNState;
import org.antlr.v4.runtime.atn.RuleStopState;
import org.antlr.v4.runtime.atn.RuleTransition;
import org.antlr.v4.runtime.atn.Transition;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.parser.SqlBaseParser;

/** Random texts of a rule of Spark's grammar: a walk through the automaton of its parser, the same for the same seed. */
public final class Texts {
    private static final int FAR = 1 << 20;
    private static final ATN GRAMMAR = SqlBaseParser._ATN;
    private static final int[] LEFT = left();

    /** The least number of tokens from each state to the end of its rule. */
    private static int[] left() {
        int[] least = new int[GRAMMAR.states.size()];
        java.util.Arrays.fill(least, FAR);
        boolean changed = true;
        while (changed) {
            changed = false;
            for (int i = 0; i < least.length; i++) {
                ATNState state = (ATNState) GRAMMAR.states.get(i);
                int best = state instanceof RuleStopState ? 0 : FAR;
                for (int t = 0; state != null && !(state instanceof RuleStopState)
                        && t < state.getNumberOfTransitions(); t++) {
                    best = Math.min(best, cost(state.transition(t), least));
                }
                if (best < least[i]) {
                    least[i] = best;
                    changed = true;
                }
            }
        }
        return least;
    }

    private static int cost(Transition by, int[] least) {
        if (by instanceof RuleTransition) {
            return Math.min(FAR, least[by.target.stateNumber] + least[((RuleTransition) by).followState.stateNumber]);
        }
        return Math.min(FAR, least[by.target.stateNumber] + (by.isEpsilon() ? 0 : 1));
    }

    /**
     * A text of `rule`, which ends soon after `most` tokens; names are of `names`, of functions of `functions`, and
     * strings of `strings`. A name that is a keyword says nothing about the tree, and takes ten times as long to parse.
     */
    public static String text(Object[] arguments) {
        long seed = ((Number) arguments[0]).longValue();
        String rule = (String) arguments[1];
        int most = ((Number) arguments[2]).intValue();
        String[] names = ((String) arguments[3]).split(" ");
        String[] functions = ((String) arguments[4]).split(" ");
        String[] strings = ((String) arguments[5]).split("\n");
        Random random = new Random(seed);
        int number = java.util.Arrays.asList(SqlBaseParser.ruleNames).indexOf(rule);
        ArrayDeque after = new ArrayDeque();
        StringBuilder text = new StringBuilder();
        ATNState at = GRAMMAR.ruleToStartState[number];
        int tokens = 0;
        for (int steps = 0; steps < 100000; steps++) {
            if (at instanceof RuleStopState) {
                if (after.isEmpty()) {
                    break;
                }
                at = (ATNState) after.pop();
                continue;
            }
            Transition by = chosen(at, random, tokens < most && after.size() < 400);
            String into = by instanceof RuleTransition ? SqlBaseParser.ruleNames[by.target.ruleIndex] : "";
            boolean function = "functionName".equals(into) && random.nextInt(8) > 0;
            if (function || "identifier".equals(into) || "errorCapturingIdentifier".equals(into)
                    || "strictIdentifier".equals(into)) {
                String[] pool = function ? functions : names;
                text.append(pool[random.nextInt(pool.length)]).append(' ');
                tokens++;
                at = ((RuleTransition) by).followState;
                continue;
            }
            if (by instanceof RuleTransition) {
                after.push(((RuleTransition) by).followState);
            } else if (!by.isEpsilon()) {
                List types = by.label() == null ? null : by.label().toList();
                int type = types == null // any token
                    ? 1 + random.nextInt(GRAMMAR.maxTokenType)
                    : ((Integer) types.get(random.nextInt(types.size()))).intValue();
                if (type != Token.EOF) {
                    text.append(token(type, random, names, strings)).append(' ');
                    tokens++;
                }
            }
            at = by.target;
        }
        return text.toString();
    }

    /** What a parser of Spark makes of a text; null if that is nothing. An error costs many calls from Python. */
    public static Object parsed(Object[] arguments) {
        ParserInterface parser = (ParserInterface) arguments[0];
        String text = (String) arguments[1];
        try {
            return ((Boolean) arguments[2]).booleanValue() ? parser.parsePlan(text) : (Object) parser.parseExpression(text);
        } catch (Throwable error) {
            return null;
        }
    }

    private static Transition chosen(ATNState at, Random random, boolean free) {
        int count = at.getNumberOfTransitions();
        if (count == 1) {
            return at.transition(0);
        }
        if (free && random.nextInt(4) > 0) {
            return at.transition(random.nextInt(count));
        }
        ArrayList best = new ArrayList();
        int least = FAR;
        for (int t = 0; t < count; t++) {
            int cost = cost(at.transition(t), LEFT);
            if (cost < least) {
                best.clear();
                least = cost;
            }
            if (cost == least) {
                best.add(at.transition(t));
            }
        }
        return (Transition) best.get(random.nextInt(best.size()));
    }

    private static String token(int type, Random random, String[] names, String[] strings) {
        String literal = SqlBaseParser.VOCABULARY.getLiteralName(type);
        if (literal != null) {
            return literal.substring(1, literal.length() - 1);
        }
        String symbol = SqlBaseParser.VOCABULARY.getSymbolicName(type);
        String name = names[random.nextInt(names.length)];
        if ("IDENTIFIER".equals(symbol)) {
            return name;
        }
        if ("BACKQUOTED_IDENTIFIER".equals(symbol)) {
            return '`' + name + '`';
        }
        if ("STRING_LITERAL".equals(symbol) || "DOUBLEQUOTED_STRING".equals(symbol)) {
            return '\'' + strings[random.nextInt(strings.length)] + '\'';
        }
        int number = random.nextInt(12);
        if ("BIGINT_LITERAL".equals(symbol)) {
            return number + "L";
        }
        if ("SMALLINT_LITERAL".equals(symbol)) {
            return number + "S";
        }
        if ("TINYINT_LITERAL".equals(symbol)) {
            return number + "Y";
        }
        if ("DECIMAL_VALUE".equals(symbol)) {
            return number + ".5";
        }
        if ("EXPONENT_VALUE".equals(symbol)) {
            return number + "e1";
        }
        if ("FLOAT_LITERAL".equals(symbol)) {
            return number + "f";
        }
        if ("DOUBLE_LITERAL".equals(symbol)) {
            return number + "d";
        }
        if ("BIGDECIMAL_LITERAL".equals(symbol)) {
            return number + "bd";
        }
        if ("INTEGER_VALUE".equals(symbol)) {
            return String.valueOf(number);
        }
        return symbol == null ? name : symbol;
    }
}
