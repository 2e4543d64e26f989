package io.evenkeel.interop;

import com.alibaba.fastjson.JSONObject;
import com.alipay.sofa.koupleless.arklet.core.common.model.BaseMetadata;
import com.alipay.sofa.koupleless.arklet.core.hook.base.BaseMetadataHook;

/**
 * Who the base is, by the properties {@code evenkeel.base.*}. The methods without {@code @Override} are those that the
 * interface has since 1.3.3.
 */
public final class Identity implements BaseMetadataHook {
    private static String of(String property, String otherwise) {
        return System.getProperty("evenkeel.base." + property, otherwise);
    }

    public String getIdentity() {
        return of("identity", "base-1");
    }

    public String getName() {
        return of("name", "base");
    }

    public String getVersion() {
        return of("version", "1.0.0");
    }

    public String getClusterName() {
        return of("cluster", "default");
    }

    public String getLocalIP() {
        return of("ip", "127.0.0.1");
    }

    public String getLocalHostName() {
        return of("host", "localhost");
    }

    public String getRuntimeEnv() {
        return of("env", "default");
    }

    public BaseMetadata getBaseMetadata() {
        return metadata().toJavaObject(BaseMetadata.class);
    }

    /** As it is sent. */
    JSONObject metadata() {
        return new JSONObject(true)
                .fluentPut("clusterName", getClusterName())
                .fluentPut("identity", getIdentity())
                .fluentPut("name", getName())
                .fluentPut("version", getVersion());
    }

    /** The body of a heartbeat, which tells of an HTTP server on {@code port}; 0 over MQTT. */
    JSONObject heartbeat(int port) {
        return new JSONObject(true)
                .fluentPut("baseMetadata", metadata())
                .fluentPut("localHostName", getLocalHostName())
                .fluentPut("localIP", getLocalIP())
                .fluentPut("port", port)
                .fluentPut("state", "activated");
    }
}
