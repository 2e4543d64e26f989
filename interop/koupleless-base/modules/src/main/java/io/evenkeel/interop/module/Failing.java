package io.evenkeel.interop.module;

/** Does not start, for a reason within a reason. */
public final class Failing {
    private Failing() {}

    public static void main(String[] args) {
        Exception cause = new IllegalArgumentException("no database at db.example:5432");
        throw new IllegalStateException("module failing cannot start", cause);
    }
}
