package io.evenkeel.interop;

import com.alipay.sofa.koupleless.arklet.core.ArkletComponentRegistry;
import java.io.File;
import java.io.OutputStream;
import java.util.Arrays;
import java.util.stream.Collectors;

/** A Koupleless base without Spring: the Ark container, embedded, and arklet. Set up by system properties. */
public final class Base {
    private Base() {}

    public static void main(String[] args) throws Exception {
        preset("sofa.ark.embed.enable", "true");
        preset("sofa.ark.telnet.server.enable", "false");
        preset("com.alipay.sofa.ark.master.biz", "base");
        preset("koupleless.arklet.custom.base.metadata.classname", Identity.class.getName());
        // In the other cases that it knows, the container runs what it is told to. Embedded, it runs beside it.
        Class.forName("com.alipay.sofa.ark.container.ArkContainer")
                .getMethod("main", String[].class)
                .invoke(null, (Object) new String[] {
                    "-Aclasspath=" + classPath(), "-BclassName=" + Base.class.getName(), "-BmethodName=main"
                });
        // Its static initialiser starts the commands, the HTTP server and the tunnels.
        new ArkletComponentRegistry();
        Heartbeat.start();
        if (Boolean.getBoolean("evenkeel.base.tied")) {
            // Ends with who started it, however that ends.
            System.in.transferTo(OutputStream.nullOutputStream());
            Runtime.getRuntime().halt(0);
        }
    }

    private static String classPath() {
        return Arrays.stream(System.getProperty("java.class.path").split(File.pathSeparator))
                .map(entry -> new File(entry).toURI().toString())
                .collect(Collectors.joining(","));
    }

    private static void preset(String property, String value) {
        System.setProperty(property, System.getProperty(property, value));
    }
}
