package io.evenkeel.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alipay.sofa.koupleless.arklet.core.api.tunnel.Tunnel;
import com.alipay.sofa.koupleless.arklet.core.command.CommandService;
import com.alipay.sofa.koupleless.arklet.core.hook.base.BaseMetadataHook;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.eclipse.paho.client.mqttv3.IMqttDeliveryToken;
import org.eclipse.paho.client.mqttv3.MqttAsyncClient;
import org.eclipse.paho.client.mqttv3.MqttCallbackExtended;
import org.eclipse.paho.client.mqttv3.MqttConnectOptions;
import org.eclipse.paho.client.mqttv3.MqttException;
import org.eclipse.paho.client.mqttv3.MqttMessage;
import org.eclipse.paho.client.mqttv3.persist.MemoryPersistence;

/**
 * MQTT with an arklet for which no tunnel of its own is to be had. A stand-in: the topics, messages, paces and
 * properties of arklet-tunnel-mqtt 1.4, without TLS and baselines; the commands below are arklet's own. Chosen by
 * {@code koupleless.arklet.custom.tunnel.classname}.
 */
public final class Mqtt implements Tunnel, MqttCallbackExtended {
    private static final int AT_LEAST_ONCE = 1;

    private final Identity identity = new Identity();
    private final String topics =
            "koupleless_" + identity.getRuntimeEnv().toLowerCase() + "/" + identity.getIdentity() + "/";
    private final ScheduledExecutorService work = Executors.newScheduledThreadPool(4);
    private CommandService commands;
    private MqttAsyncClient client;

    @Override
    public void init(CommandService commands, BaseMetadataHook hook) {
        this.commands = commands;
    }

    @Override
    public void run() {
        String broker = "tcp://" + set("broker") + ":" + set("port");
        MqttConnectOptions options = new MqttConnectOptions();
        options.setAutomaticReconnect(true);
        options.setMaxReconnectDelay(5000);
        options.setUserName(set("username"));
        options.setPassword(set("password").toCharArray());
        try {
            String id = set("client.prefix") + "@@@" + identity.getIdentity();
            client = new MqttAsyncClient(broker, id, new MemoryPersistence());
            client.setCallback(this);
            client.connect(options).waitForCompletion(30_000);
        } catch (MqttException failed) {
            throw new IllegalStateException("no broker at " + broker, failed);
        }
        publish("queryBaseline", identity.metadata());
        work.scheduleAtFixedRate(() -> publish("heart", identity.heartbeat(0)), 0, 10, TimeUnit.SECONDS);
    }

    @Override
    public void shutdown() {
        work.shutdownNow();
    }

    @Override
    public void connectComplete(boolean again, String broker) {
        try {
            client.subscribe(topics + "+", AT_LEAST_ONCE);
        } catch (MqttException failed) {
            System.out.println("cannot subscribe: " + failed);
        }
    }

    @Override
    public void messageArrived(String topic, MqttMessage message) {
        String command = topic.substring(topic.lastIndexOf('/') + 1);
        String text = message.toString();
        work.execute(() -> execute(command, JSON.parseObject(text)));
    }

    @Override
    public void connectionLost(Throwable why) {}

    @Override
    public void deliveryComplete(IMqttDeliveryToken token) {}

    private void execute(String command, JSONObject request) {
        JSONObject response;
        try {
            // Over MQTT enumerations go by their names, unlike over HTTP.
            response = JSON.parseObject(JSON.toJSONString(commands.process(command, request)));
        } catch (Throwable thrown) {
            StringWriter trace = new StringWriter();
            thrown.printStackTrace(new PrintWriter(trace));
            response = new JSONObject()
                    .fluentPut("code", "FAILED")
                    .fluentPut("data", new JSONObject().fluentPut("code", "FAILED").fluentPut("message", trace))
                    .fluentPut("message", thrown.getMessage());
        }
        switch (command) {
            case "health" -> publish("health", response);
            case "queryAllBiz" -> publish("simpleBiz", simple(response.getJSONArray("data")));
            case "installBiz", "uninstallBiz" -> publish("bizOperation", new JSONObject()
                    .fluentPut("bizName", request.get("bizName"))
                    .fluentPut("bizVersion", request.get("bizVersion"))
                    .fluentPut("command", command)
                    .fluentPut("response", response));
            default -> System.out.println("not offered over MQTT: " + command);
        }
    }

    private static JSONArray simple(JSONArray all) {
        JSONArray simple = new JSONArray();
        for (JSONObject one : all.toJavaList(JSONObject.class)) {
            JSONArray records = one.getJSONArray("bizStateRecords");
            simple.add(new JSONObject()
                    .fluentPut("latestStateRecord", records.get(records.size() - 1))
                    .fluentPut("name", one.get("bizName"))
                    .fluentPut("state", one.getString("bizState").toLowerCase())
                    .fluentPut("version", one.get("bizVersion")));
        }
        return simple;
    }

    private void publish(String topic, Object data) {
        JSONObject message = new JSONObject()
                .fluentPut("data", data)
                .fluentPut("publishTimestamp", System.currentTimeMillis());
        try {
            client.publish(topics + "base/" + topic, message.toString().getBytes(), AT_LEAST_ONCE, false);
        } catch (MqttException failed) {
            System.out.println("cannot publish " + topic + ": " + failed);
        }
    }

    private static String set(String name) {
        String value = System.getProperty("koupleless.arklet.mqtt." + name);
        if (value == null || value.isEmpty()) {
            throw new IllegalStateException("koupleless.arklet.mqtt." + name + " is not set");
        }
        return value;
    }
}
