//! Modules as a base finds them: by URL, with what their manifest says and how they behave.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// A module's jar.
#[derive(Clone, Debug)]
pub struct Jar {
    /// `Ark-Biz-Name`: the name it is installed by, whatever the request says.
    pub name: String,
    /// `Ark-Biz-Version`.
    pub version: String,
    /// `Main-Class`.
    pub main_class: String,
    /// `priority`: order among the modules of a batch, low first. arklet's default is 1000.
    pub priority: i64,
    /// `web-context-path`; `/` by default.
    pub web_context_path: String,
    /// Metaspace it takes while it is installed, in bytes.
    pub metaspace: i64,
    /// Metaspace that uninstalling it does not give back, in bytes.
    pub leak: i64,
    /// What fetching the jar does.
    pub download: Download,
    /// What its `main` does.
    pub start: Start,
    /// Its handler of `BeforeBizStopEvent` throws this.
    pub stop_fails: Option<Thrown>,
}

/// What fetching a jar does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Download {
    /// Takes this long.
    Takes(Duration),
    /// Never ends.
    Hangs,
}

/// What a module's `main` does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Returns at once.
    Instant,
    /// Returns after this long.
    Slow(Duration),
    /// Returns when the test releases the URL (`Base::release`).
    Held,
    /// Throws.
    Fails(Thrown),
    /// Throws after this long.
    FailsAfter(Duration, Thrown),
    /// Never returns.
    Hangs,
}

/// An exception of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thrown {
    /// Full name of its class.
    pub class: String,
    /// Its message, if it has one.
    pub message: Option<String>,
}

impl Thrown {
    /// An exception with a message.
    pub fn new(class: &str, message: &str) -> Self {
        Self {
            class: class.to_owned(),
            message: Some(message.to_owned()),
        }
    }
}

impl Jar {
    /// A module that starts at once and takes 1 MiB of metaspace.
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            main_class: format!("com.example.{name}.Main"),
            priority: 1000,
            web_context_path: "/".to_owned(),
            metaspace: 1 << 20,
            leak: 0,
            download: Download::Takes(Duration::ZERO),
            start: Start::Instant,
            stop_fails: None,
        }
    }

    /// The same with another main class.
    #[must_use]
    pub fn main_class(mut self, class: &str) -> Self {
        class.clone_into(&mut self.main_class);
        self
    }

    /// The same with another priority.
    #[must_use]
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = priority;
        self
    }

    /// The same with another web context path.
    #[must_use]
    pub fn web_context_path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.web_context_path);
        self
    }

    /// The same with so many bytes of metaspace.
    #[must_use]
    pub fn metaspace(mut self, bytes: i64) -> Self {
        self.metaspace = bytes;
        self
    }

    /// The same, of whose metaspace so many bytes are never given back.
    #[must_use]
    pub fn leaking(mut self, bytes: i64) -> Self {
        self.leak = bytes;
        self
    }

    /// The same with another `main`.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// The same with another way to be fetched.
    #[must_use]
    pub fn download(mut self, download: Download) -> Self {
        self.download = download;
        self
    }

    /// The same whose stop handler throws.
    #[must_use]
    pub fn stop_fails(mut self, thrown: Thrown) -> Self {
        self.stop_fails = Some(thrown);
        self
    }

    /// `name:version`.
    pub fn identity(&self) -> String {
        format!("{}:{}", self.name, self.version)
    }
}

/// The jars there are, by URL. Clones share the catalogue: a jar put there later is seen by every base that
/// has it.
#[derive(Clone, Debug, Default)]
pub struct Jars(Arc<RwLock<BTreeMap<String, Arc<Jar>>>>);

impl Jars {
    /// An empty catalogue.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with one jar more.
    #[must_use]
    pub fn with(self, url: &str, jar: Jar) -> Self {
        self.put(url, jar);
        self
    }

    /// Puts a jar at a URL, in place of the one there.
    pub fn put(&self, url: &str, jar: Jar) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(url.to_owned(), Arc::new(jar));
    }

    /// From now on there is nothing at the URL.
    pub fn remove(&self, url: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(url);
    }

    /// The jar at a URL.
    pub fn get(&self, url: &str) -> Option<Arc<Jar>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(url)
            .cloned()
    }
}
