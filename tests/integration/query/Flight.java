import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;

public class Flight {
    public static void main(String[] arguments) throws Exception {
        try (Connection connection = DriverManager.getConnection(arguments[0])) {
            System.out.println(connection.getMetaData().getDatabaseProductName());
            try (var statement = connection.createStatement();
                    var found = statement.executeQuery(
                        "SELECT _offset AS o, decode(_value) AS v FROM jdbc WHERE _offset > 2 ORDER BY o")) {
                while (found.next()) {
                    System.out.println("row " + found.getLong("o") + " " + found.getString("v"));
                }
            }
            try (var prepared = connection.prepareStatement(
                    "SELECT count(*) AS n FROM jdbc WHERE decode(_value) = ? OR _offset = ?")) {
                prepared.setString(1, "0-1");
                prepared.setString(2, "4");
                try (var found = prepared.executeQuery()) {
                    found.next();
                    System.out.println("prepared " + found.getLong(1));
                }
            }
            try (var found = connection.getMetaData().getTables("lakestream", "default", "jdbc", null)) {
                while (found.next()) {
                    System.out.println("table " + found.getString(1) + " " + found.getString(2) + " "
                        + found.getString(3) + " " + found.getString(4));
                }
            }
            try (var found = connection.getMetaData().getColumns("lakestream", "default", "jdbc", "_offset")) {
                while (found.next()) {
                    System.out.println("column " + found.getString("COLUMN_NAME") + " " + found.getString("TYPE_NAME"));
                }
            }
            try (var statement = connection.createStatement()) {
                statement.executeQuery("SELECT * FROM nothing");
            } catch (SQLException refused) {
                System.out.println("refused " + refused.getMessage().contains("unknown_table"));
            }
        }
    }
}
