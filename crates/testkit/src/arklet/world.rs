//! What a base does not decide itself: the time, the machine's figures, the frames of its stack traces, and
//! who wins a race between threads. A recording that is replayed supplies its own.

use super::java::Frame;
use std::time::{SystemTime, UNIX_EPOCH};

/// Why the engine asks for the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// The base has started; about its identity.
    Boot,
    /// A jar gets its temporary file, which is named after this instant; about the jar's URL.
    TempFile,
    /// The jar is there and the installation begins; about the jar's URL.
    Begun,
    /// The module is registered; about the jar's URL.
    Created,
    /// Its `main` returned or threw; about the jar's URL.
    Ended,
    /// A module was switched to; about `name:version`.
    Switched,
    /// A module is being stopped; about `name:version`.
    Stopped,
    /// A record of an asynchronous command is made; about the request id.
    Accepted,
    /// An asynchronous command is done; about the request id.
    Finished,
    /// A message is published over MQTT; about the last level of its topic.
    Published,
    /// A request arrives, for the log; about the command.
    Asked,
}

/// On which thread a command runs, which is the outer part of its stack traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// An event loop of the HTTP server.
    EventLoop,
    /// The pool for asynchronous commands and for batches.
    Pool,
    /// The MQTT tunnel.
    Mqtt,
}

/// Figures of the Java machine and its host for `health`, without those of the metaspace. Memory in MiB.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// `java version`.
    pub java_version: String,
    /// `java home`.
    pub java_home: String,
    /// `run time(s)`.
    pub run_time: f64,
    /// Total, max and free memory.
    pub memory: [f64; 3],
    /// Init, used, committed and max heap.
    pub heap: [f64; 4],
    /// Init, used, committed and max memory outside the heap.
    pub non_heap: [f64; 4],
    /// Loaded, unloaded and total classes.
    pub classes: [i64; 3],
    /// CPUs.
    pub cpus: i64,
    /// Their name.
    pub cpu_type: String,
    /// `total used (%)`, in truth a count of ticks; then user, system and free in per cent.
    pub cpu: [f64; 4],
}

impl Machine {
    /// A machine that has run for so many seconds.
    pub fn up(seconds: f64) -> Self {
        Self {
            java_version: "17.0.15".to_owned(),
            java_home: "/usr/lib/jvm/java-17-openjdk-amd64".to_owned(),
            run_time: seconds,
            memory: [388.0, 6028.0, 363.5],
            heap: [380.0, 24.5, 388.0, 6028.0],
            non_heap: [7.3125, 22.5, 26.0, 704.0],
            classes: [3968, 0, 3968],
            cpus: 2,
            cpu_type: "AMD EPYC".to_owned(),
            cpu: [14_430.0, 2.75, 2.5, 94.75],
        }
    }
}

/// The surroundings of a base.
pub trait World: Send {
    /// Milliseconds since 1970 at this moment, about what `Moment` says.
    fn at(&mut self, moment: Moment, about: &str) -> i64;

    /// Metaspace that a command took by its own reckoning, given what its modules took. The real figure also
    /// holds what else happened meanwhile.
    fn elapsed_space(&mut self, grown: i64) -> i64 {
        grown
    }

    /// Whether the pool begins an asynchronous command before its caller is answered.
    fn begins_at_once(&mut self, request_id: &str) -> bool {
        let _ = request_id;
        true
    }

    /// The machine's figures; the base started at `boot`.
    fn machine(&mut self, boot: i64) -> Machine {
        Machine::up((self.at(Moment::Asked, "health") - boot) as f64 / 1000.0)
    }

    /// Frames of a throwable of this class, innermost first, thrown while `handler` (a class of arklet)
    /// served a command on `carrier`. `depth` counts causes from the outermost.
    fn frames(&mut self, class: &str, handler: &str, carrier: Carrier, depth: usize) -> Vec<Frame> {
        plausible_frames(class, handler, carrier, depth)
    }
}

/// The world as it is: the machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealWorld;

impl World for RealWorld {
    fn at(&mut self, _moment: Moment, _about: &str) -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as i64)
    }
}

/// Short traces of the right shape.
fn plausible_frames(class: &str, handler: &str, carrier: Carrier, depth: usize) -> Vec<Frame> {
    const CORE: &str = "com.alipay.sofa.koupleless.arklet.core";
    let mut frames = Vec::new();
    if depth > 0 {
        frames.push(Frame::new(class, "<init>", 40 + depth as i32));
        frames.push(Frame::new("com.alipay.sofa.ark.api.ArkClient", "installBiz", 169));
    }
    frames.push(Frame::new(handler, "handle", if depth == 0 { 77 } else { 68 }));
    frames.push(Frame::new(
        &format!("{CORE}.command.CommandServiceImpl"),
        "process",
        180,
    ));
    match carrier {
        Carrier::EventLoop => frames.push(Frame::new(
            &format!("{CORE}.api.tunnel.http.netty.NettyHttpServer$NettyHttpHandler"),
            "channelRead0",
            169,
        )),
        Carrier::Mqtt => frames.push(Frame::new(
            "com.alipay.sofa.koupleless.arklet.tunnel.mqtt.paho.MqttMessageHandler",
            "handleCommand",
            200,
        )),
        Carrier::Pool => {}
    }
    frames.push(Frame {
        loader: None,
        module: Some(("java.base".to_owned(), "17.0.15".to_owned())),
        ..Frame::new("java.lang.Thread", "run", 840)
    });
    frames
}

/// `yyyyMMddHHmmssSSS` in UTC, of milliseconds since 1970.
pub(crate) fn stamp(millis: i64) -> String {
    written(millis, "%Y%m%d%H%M%S%3f")
}

/// `HH:mm:ss,SSS` in UTC.
pub(crate) fn clock_time(millis: i64) -> String {
    written(millis, "%H:%M:%S,%3f")
}

fn written(millis: i64, format: &str) -> String {
    jiff::Timestamp::from_millisecond(millis)
        .unwrap_or_default()
        .strftime(format)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_as_java_does_in_utc() {
        assert_eq!(stamp(1_795_170_390_915), "20261120102630915");
        assert_eq!(clock_time(1_795_170_390_937), "10:26:30,937");
        assert_eq!(stamp(951_782_400_001), "20000229000000001");
        assert_eq!(stamp(1_709_251_199_999), "20240229235959999");
    }
}
