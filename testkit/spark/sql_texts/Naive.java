package rota.sql;

import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayDeque;
import java.util.IdentityHashMap;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.trees.TreeNode;

/**
 * All nodes, functions and relations that can be reached from an object by its fields, whatever these are for: another
 * way than the Reader's, which goes by what Spark's own classes say that they hold.
 */
public final class Naive {
    public static String found(Object[] arguments) throws Exception {
        TreeSet lines = new TreeSet();
        IdentityHashMap seen = new IdentityHashMap();
        ArrayDeque waiting = new ArrayDeque();
        waiting.push(arguments[0]);
        while (!waiting.isEmpty()) {
            Object object = waiting.pop();
            if (seen.put(object, object) != null) {
                continue;
            }
            Class of = object.getClass();
            if (of.isArray()) {
                for (int i = 0; !of.getComponentType().isPrimitive() && i < Array.getLength(object); i++) {
                    if (Array.get(object, i) != null) {
                        waiting.push(Array.get(object, i));
                    }
                }
                continue;
            }
            if (object instanceof TreeNode) {
                lines.add("node " + of.getName());
                String simple = of.getSimpleName();
                if ("UnresolvedFunction".equals(simple)) {
                    lines.add("function " + names(field(object, "nameParts")));
                } else if ("UnresolvedGenerator".equals(simple)) {
                    lines.add("function " + field(object, "name"));
                } else if ("UnresolvedTableValuedFunction".equals(simple)) {
                    lines.add("table " + names(field(object, "name")));
                } else if ("UnresolvedWith".equals(simple)) {
                    scala.collection.Iterator named =
                        ((scala.collection.Iterable) field(object, "cteRelations")).iterator();
                    while (named.hasNext()) {
                        lines.add("named " + ((scala.Product) named.next()).productElement(0));
                    }
                } else if ("UnresolvedRelation".equals(simple)) {
                    lines.add("relation " + names(field(object, "multipartIdentifier")));
                }
            }
            for (Class above = of; above != null && goesInto(above.getName()); above = above.getSuperclass()) {
                Field[] fields = above.getDeclaredFields();
                for (int i = 0; i < fields.length; i++) {
                    if (Modifier.isStatic(fields[i].getModifiers()) || fields[i].getType().isPrimitive()) {
                        continue;
                    }
                    fields[i].setAccessible(true);
                    Object value = fields[i].get(object);
                    if (value != null) {
                        waiting.push(value);
                    }
                }
            }
        }
        StringBuilder text = new StringBuilder();
        Object[] all = lines.toArray();
        for (int i = 0; i < all.length; i++) {
            text.append(all[i]).append('\n');
        }
        return text.toString();
    }

    /** Not into the session, its settings and the JVM's own: a tree holds none of them. */
    private static boolean goesInto(String name) {
        return name.startsWith("scala.") || (name.startsWith("org.apache.spark.sql.")
                && !name.startsWith("org.apache.spark.sql.internal.") && !name.startsWith("org.apache.spark.sql.classic.")
                && !name.startsWith("org.apache.spark.sql.catalyst.parser."));
    }

    private static Object field(Object object, String name) throws Exception {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }

    private static String names(Object sequence) {
        return ((scala.collection.Iterable) sequence).mkString(".");
    }
}
