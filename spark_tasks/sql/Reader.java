package rota.sql;

import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.util.ArrayDeque;
import java.util.IdentityHashMap;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.DataType;

/**
 * Reads a parsed tree out as text, a line for each object that can be reached: parent's line number, name within the
 * parent, sort (node, product, sequence, value, trouble), class and, for values, the text.
 *
 * It is compiled in Spark's JVM by Janino, which comes with Spark and knows no generics: a walk from Python would cost
 * a call for each object. It only reads; spark_tasks/sql/judging.py decides what is allowed.
 */
public final class Reader {
    private static final int MOST = 1000000;

    private final StringBuilder out = new StringBuilder();
    private final IdentityHashMap seen = new IdentityHashMap();
    private final ArrayDeque waiting = new ArrayDeque();
    private int lines = 0;

    private static final class Waiting {
        final int parent;
        final String name;
        final Object object;

        Waiting(int parent, String name, Object object) {
            this.parent = parent;
            this.name = name;
            this.object = object;
        }
    }

    public static String read(Object root) {
        Reader reader = new Reader();
        reader.waiting.push(new Waiting(-1, "", root));
        while (!reader.waiting.isEmpty()) {
            Waiting next = (Waiting) reader.waiting.pop();
            if (reader.lines >= MOST) {
                reader.line(next.parent, next.name, "trouble", "more than " + MOST + " objects", "");
                break;
            }
            reader.visit(next.parent, next.name, next.object);
        }
        return reader.out.toString();
    }

    /** The classes of all expressions of an analysed plan, one in each line. A relation's own objects are not read. */
    public static String classes(Object plan) {
        java.util.TreeSet names = new java.util.TreeSet();
        IdentityHashMap seen = new IdentityHashMap();
        ArrayDeque waiting = new ArrayDeque();
        waiting.push(plan);
        while (!waiting.isEmpty()) {
            TreeNode node = (TreeNode) waiting.pop();
            if (seen.put(node, node) != null) {
                continue;
            }
            if (!(node instanceof QueryPlan)) {
                names.add(node.getClass().getName());
            } else {
                all(waiting, ((QueryPlan) node).subqueries().iterator());
                all(waiting, ((QueryPlan) node).expressions().iterator());
            }
            all(waiting, node.innerChildren().iterator());
            all(waiting, node.children().iterator());
        }
        StringBuilder lines = new StringBuilder();
        Object[] found = names.toArray();
        for (int i = 0; i < found.length; i++) {
            lines.append(found[i]).append('\n');
        }
        return lines.toString();
    }

    private static void all(ArrayDeque waiting, scala.collection.Iterator iterator) {
        while (iterator.hasNext()) {
            waiting.push(iterator.next());
        }
    }

    private void visit(int parent, String name, Object object) {
        if (object == null) {
            this.line(parent, name, "value", "null", "");
            return;
        }
        String of = object.getClass().getName();
        if (object instanceof TreeNode) {
            if (this.seen.put(object, object) != null) {
                return;
            }
            this.node(this.line(parent, name, "node", of, ""), (TreeNode) object);
        } else if (object instanceof scala.Product && !(object instanceof scala.collection.Iterable
                && !(object instanceof DataType))) {
            this.elements(this.line(parent, name, "product", of, ""), (scala.Product) object);
        } else if (object instanceof scala.collection.Iterable) {
            int mine = this.line(parent, name, "sequence", of, "");
            this.iterated(mine, "", ((scala.collection.Iterable) object).iterator());
        } else if (object instanceof java.util.Map) {
            int mine = this.line(parent, name, "sequence", of, "");
            Object[] entries = ((java.util.Map) object).entrySet().toArray();
            for (int i = entries.length - 1; i >= 0; i--) {
                this.push(mine, "value", ((java.util.Map.Entry) entries[i]).getValue());
                this.push(mine, "key", ((java.util.Map.Entry) entries[i]).getKey());
            }
        } else if (object.getClass().isArray() && !object.getClass().getComponentType().isPrimitive()) {
            int mine = this.line(parent, name, "sequence", of, "");
            for (int i = Array.getLength(object) - 1; i >= 0; i--) {
                this.push(mine, "", Array.get(object, i));
            }
        } else {
            this.line(parent, name, "value", of, object instanceof byte[] ? "" : String.valueOf(object));
        }
    }

    /** Pushed last and so visited first: the node's elements. Then the objects that its own methods name. */
    private void node(int mine, TreeNode node) {
        try {
            Field tags = TreeNode.class.getDeclaredField("_tags");
            tags.setAccessible(true);
            if (tags.get(node) != null) {
                this.push(mine, "+tags", tags.get(node));
            }
            this.iterated(mine, "+otherCopyArgs", node.otherCopyArgs().iterator());
            if (node instanceof QueryPlan) {
                this.iterated(mine, "+subqueries", ((QueryPlan) node).subqueries().iterator());
                this.iterated(mine, "+expressions", ((QueryPlan) node).expressions().iterator());
            }
            this.iterated(mine, "+innerChildren", node.innerChildren().iterator());
            this.iterated(mine, "+children", node.children().iterator());
        } catch (Throwable error) {
            this.line(mine, "", "trouble", error.getClass().getName(), String.valueOf(error.getMessage()));
        }
        this.elements(mine, (scala.Product) node);
    }

    private void elements(int mine, scala.Product product) {
        for (int i = product.productArity() - 1; i >= 0; i--) {
            this.push(mine, product.productElementName(i), product.productElement(i));
        }
    }

    private void iterated(int mine, String name, scala.collection.Iterator iterator) {
        java.util.ArrayList all = new java.util.ArrayList();
        while (iterator.hasNext() && all.size() <= MOST) {
            all.add(iterator.next());
        }
        for (int i = all.size() - 1; i >= 0; i--) {
            this.push(mine, name, all.get(i));
        }
    }

    private void push(int parent, String name, Object object) {
        this.waiting.push(new Waiting(parent, name, object));
    }

    private int line(int parent, String name, String sort, String of, String text) {
        this.out.append(parent).append('\t').append(name).append('\t').append(sort).append('\t').append(of);
        this.out.append('\t');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '\n') {
                this.out.append("\\n");
            } else if (c == '\t') {
                this.out.append("\\t");
            } else if (c == '\\') {
                this.out.append("\\\\");
            } else if (Character.isSurrogate(c) || c == '\r' || c < ' ' || c == 0x85 || c == 0x2028 || c == 0x2029) {
                this.out.append("\\u").append(String.format("%04x", new Object[] {Integer.valueOf(c)}));
            } else {
                this.out.append(c);
            }
        }
        this.out.append('\n');
        return this.lines++;
    }
}
