package io.evenkeel.interop.module;

/** Takes {@code -Devenkeel.slow.ms} of the base to start; 3 s without. */
public final class Slow {
    private Slow() {}

    public static void main(String[] args) throws InterruptedException {
        Thread.sleep(Long.getLong("evenkeel.slow.ms", 3000));
    }
}
