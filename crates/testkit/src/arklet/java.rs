//! What a Java machine throws: throwables, their printed stack traces, and the bean fastjson makes of them.

use super::bean::bean;
use serde_json::{Value, json};

/// One line of a stack trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Class loader with a name, `app` for the base's own classes.
    pub loader: Option<String>,
    /// Module of the JDK and its version, such as `java.base` and `17.0.15`.
    pub module: Option<(String, String)>,
    /// Full name of the class.
    pub class: String,
    /// Name of the method.
    pub method: String,
    /// Source file.
    pub file: String,
    /// Line in it; −2 for a native method.
    pub line: i32,
}

impl Frame {
    /// A frame of the application's class path; the file is named after the outermost class.
    pub fn new(class: &str, method: &str, line: i32) -> Self {
        let simple = class.rsplit('.').next().unwrap_or(class);
        let outer = simple.split('$').next().unwrap_or(simple);
        Self {
            loader: Some("app".to_owned()),
            module: None,
            class: class.to_owned(),
            method: method.to_owned(),
            file: format!("{outer}.java"),
            line,
        }
    }

    /// As in a printed trace. The application's class loader and the JDK's versions are not printed.
    fn text(&self) -> String {
        let module = self
            .module
            .as_ref()
            .map(|(name, _)| format!("{name}/"))
            .unwrap_or_default();
        let place = if self.line == NATIVE {
            "Native Method".to_owned()
        } else {
            format!("{}:{}", self.file, self.line)
        };
        format!("{module}{}.{}({place})", self.class, self.method)
    }

    fn bean(&self) -> Value {
        let (module, version) = self.module.clone().unzip();
        bean([
            ("classLoaderName", json!(self.loader.as_deref())),
            ("className", json!(self.class)),
            ("fileName", json!(self.file)),
            ("lineNumber", json!(self.line)),
            ("methodName", json!(self.method)),
            ("moduleName", json!(module.as_deref())),
            ("moduleVersion", json!(version.as_deref())),
            ("nativeMethod", json!(self.line == NATIVE)),
        ])
    }
}

/// Line number of a native method.
const NATIVE: i32 = -2;

/// What `Method.invoke` throws when the method called did.
pub(crate) const INVOCATION_TARGET: &str = "java.lang.reflect.InvocationTargetException";

/// A Java throwable with its causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throwable {
    /// Full name of the class.
    pub class: String,
    /// `getMessage()`.
    pub message: Option<String>,
    /// Innermost frame first, all of them.
    pub frames: Vec<Frame>,
    /// `getCause()`.
    pub cause: Option<Box<Throwable>>,
}

impl Throwable {
    /// `toString()`: the class, and the message if there is one.
    pub fn head(&self) -> String {
        match &self.message {
            Some(message) => format!("{}: {message}", self.class),
            None => self.class.clone(),
        }
    }

    /// `printStackTrace()`: frames shared with the enclosing trace are counted, not repeated.
    pub fn trace(&self) -> String {
        let mut lines = vec![self.head()];
        let at = |frame: &Frame| format!("\tat {}", frame.text());
        lines.extend(self.frames.iter().map(at));
        let (mut enclosing, mut next) = (self, self.cause.as_deref());
        while let Some(cause) = next {
            let shared = cause
                .frames
                .iter()
                .rev()
                .zip(enclosing.frames.iter().rev())
                .take_while(|(a, b)| a == b)
                .count();
            lines.push(format!("Caused by: {}", cause.head()));
            let own = cause.frames.len() - shared;
            lines.extend(cause.frames.iter().take(own).map(at));
            if shared > 0 {
                lines.push(format!("\t... {shared} more"));
            }
            (enclosing, next) = (cause, cause.cause.as_deref());
        }
        lines.join("\n") + "\n"
    }

    /// The bean fastjson writes, found in the document at `path` (such as `$.data.throwable`).
    pub(crate) fn bean(&self, path: &str) -> Value {
        let within = format!("{path}.cause");
        // The same object again: fastjson refers to where it was first.
        let target = if self.class == INVOCATION_TARGET && self.cause.is_some() {
            json!({ "$ref": within })
        } else {
            Value::Null
        };
        bean([
            ("@type", json!(self.class)),
            (
                "cause",
                self.cause
                    .as_ref()
                    .map_or(Value::Null, |cause| cause.bean(&within)),
            ),
            ("localizedMessage", json!(self.message.as_deref())),
            ("message", json!(self.message.as_deref())),
            (
                "stackTrace",
                Value::Array(self.frames.iter().map(Frame::bean).collect()),
            ),
            ("targetException", target),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throwable(class: &str, message: Option<&str>, frames: &[(&str, i32)]) -> Throwable {
        Throwable {
            class: class.to_owned(),
            message: message.map(str::to_owned),
            frames: frames
                .iter()
                .map(|(class, line)| Frame::new(class, "run", *line))
                .collect(),
            cause: None,
        }
    }

    #[test]
    fn shared_frames_are_counted_and_not_repeated() {
        let mut outer = throwable("a.Outer", Some("b.Inner: deep"), &[("a.X", 7), ("a.Loop", 1)]);
        outer.cause = Some(Box::new(throwable(
            "b.Inner",
            Some("deep"),
            &[("b.Y$Z", 3), ("a.X", 6), ("a.Loop", 1)],
        )));
        assert_eq!(
            outer.trace(),
            "a.Outer: b.Inner: deep\n\tat a.X.run(X.java:7)\n\tat a.Loop.run(Loop.java:1)\n\
             Caused by: b.Inner: deep\n\tat b.Y$Z.run(Y.java:3)\n\tat a.X.run(X.java:6)\n\t... 1 more\n"
        );
    }

    #[test]
    fn a_throwable_without_a_message_is_its_class() {
        assert_eq!(throwable("a.B", None, &[]).trace(), "a.B\n");
    }
}
