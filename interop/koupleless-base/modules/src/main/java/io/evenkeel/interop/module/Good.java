package io.evenkeel.interop.module;

/** Starts at once. */
public final class Good {
    private Good() {}

    public static void main(String[] args) {
        System.out.println("good module started");
    }
}
