package io.evenkeel.interop.module;

import java.io.InputStream;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodHandles.Lookup.ClassOption;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.util.concurrent.CountDownLatch;

/**
 * Takes {@code -Devenkeel.fat.mib} of the base's metaspace, 16 MiB without, by classes that differ in nothing but their
 * identity. Leaks them as modules do in earnest: a thread that never ends holds the class loader after uninstall, so
 * that only a new process gets rid of them.
 */
public final class Fat {
    private Fat() {}

    public static void main(String[] args) throws Exception {
        byte[] ballast;
        try (InputStream file = Fat.class.getResourceAsStream("Fat.class")) {
            ballast = file.readAllBytes();
        }
        MemoryPoolMXBean metaspace = ManagementFactory.getMemoryPoolMXBeans().stream()
                .filter(pool -> pool.getName().equals("Metaspace"))
                .findAny()
                .orElseThrow();
        long enough = metaspace.getUsage().getUsed() + (Long.getLong("evenkeel.fat.mib", 16) << 20);
        while (metaspace.getUsage().getUsed() < enough) {
            MethodHandles.lookup().defineHiddenClass(ballast, false, ClassOption.STRONG);
        }
        Thread leak = new Thread(Fat::forever, "leak");
        leak.setDaemon(true);
        leak.start();
    }

    private static void forever() {
        try {
            new CountDownLatch(1).await();
        } catch (InterruptedException told) {
            Thread.currentThread().interrupt();
        }
    }
}
