//! Virtual volumes: contents of ConfigMaps, Secrets, the downward API and projected sources as files in
//! memory.

mod path;

use crate::core::env::{Found, Location, Reference, field};
use evenkeel_kube_values::Quantity;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Pod, Volume as Source, VolumeProjection};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Volumes of a pod by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes(pub BTreeMap<String, Volume>);

/// A volume with what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Volume {
    /// Files from objects, by path relative to the mount. Read-only for containers.
    Files(BTreeMap<String, File>),
    /// Empty at first, written by containers, gone with the pod.
    Scratch {
        /// Bytes at the most; none without.
        limit: Option<u64>,
    },
    /// The provider's own affair: `hostPath`, claims, CSI.
    Foreign,
}

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// What is read from the file.
    pub contents: Contents,
    /// Permission bits.
    pub mode: u32,
}

/// What is in a file.
#[derive(Clone, PartialEq, Eq)]
pub enum Contents {
    /// Bytes that are known already.
    Bytes(Arc<[u8]>),
    /// A token that is requested when it is read.
    Token(TokenSource),
}

/// Without the bytes, which may be a Secret's.
impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({} of them)", bytes.len()),
            Self::Token(source) => f.debug_tuple("Token").field(source).finish(),
        }
    }
}

/// A token to be requested for a pod's ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenSource {
    /// For whom; the API server itself where empty.
    pub audience: String,
    /// How long it lasts, in seconds: at least 600; 3600 where nothing is said.
    pub expiration: i64,
}

/// Permissions of files where nothing is said.
const MODE: i32 = 0o644;
/// Most bytes of a ConfigMap or Secret, and of the downward API's files of one volume: what the API server
/// takes for an object, and more than a pod's metadata can hold.
const MOST_BYTES: usize = 1 << 20;
/// Seconds of a token's life where nothing is said.
const TOKEN_SECONDS: i64 = 3600;

type Files = BTreeMap<String, File>;

/// What a pod's volumes refer to.
pub fn references(pod: &Pod) -> BTreeSet<Reference> {
    let mut references = BTreeSet::new();
    for volume in sources(pod) {
        if let Some(source) = &volume.config_map {
            references.extend(Reference::config_map(&source.name));
        }
        if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref();
            references.extend(name.and_then(Reference::secret));
        }
        let projected = volume.projected.as_ref();
        for source in projected
            .and_then(|projected| projected.sources.as_ref())
            .into_iter()
            .flatten()
        {
            if let Some(source) = &source.config_map {
                references.extend(Reference::config_map(&source.name));
            }
            if let Some(source) = &source.secret {
                references.extend(Reference::secret(&source.name));
            }
        }
    }
    references
}

/// Makes the volumes of what was found; an error is the message of `FailedMount`, about the first volume that
/// failed.
pub fn resolve(pod: &Pod, found: &Found, location: &Location) -> Result<Volumes, String> {
    let mut volumes = BTreeMap::new();
    for source in sources(pod) {
        let volume = volume(pod, source, found, location)
            .map_err(|error| format!("MountVolume.SetUp failed for volume {:?} : {error}", source.name))?;
        volumes.insert(source.name.clone(), volume);
    }
    Ok(Volumes(volumes))
}

fn sources(pod: &Pod) -> impl Iterator<Item = &Source> {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.volumes.as_ref()).into_iter().flatten()
}

fn volume(pod: &Pod, source: &Source, found: &Found, location: &Location) -> Result<Volume, String> {
    let mut files = if let Some(source) = &source.config_map {
        let mode = source.default_mode.unwrap_or(MODE);
        of_config_map(
            &source.name,
            source.items.as_deref(),
            source.optional,
            mode,
            found,
        )?
    } else if let Some(source) = &source.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let mode = source.default_mode.unwrap_or(MODE);
        of_secret(name, source.items.as_deref(), source.optional, mode, found)?
    } else if let Some(source) = &source.downward_api {
        let mut room = MOST_BYTES;
        let mode = source.default_mode.unwrap_or(MODE);
        of_downward(pod, source.items.as_deref(), mode, location, &mut room)?
    } else if let Some(source) = &source.projected {
        let mode = source.default_mode.unwrap_or(MODE);
        projected(pod, source.sources.as_deref(), mode, found, location)?
    } else if let Some(source) = &source.empty_dir {
        let limit = match &source.size_limit {
            None => None,
            Some(text) => {
                let limit = Quantity::parse(&text.0);
                let limit = limit.map_err(|_| format!("sizeLimit {:?} is no quantity", text.0))?;
                u64::try_from(limit.value()).ok().filter(|limit| *limit > 0)
            }
        };
        return Ok(Volume::Scratch { limit });
    } else {
        return Ok(Volume::Foreign);
    };
    files = path::cleaned(files)?;
    Ok(Volume::Files(files))
}

fn of_config_map(
    name: &str,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
    mode: i32,
    found: &Found,
) -> Result<Files, String> {
    let data = found.config_map(name).map(|object| {
        let texts = object.data.iter().flatten();
        let texts = texts.map(|(key, text)| (key.as_str(), text.as_bytes()));
        // Text is preferred where both have a key, which the API server does not allow.
        bytes(object.binary_data.as_ref()).chain(texts).collect()
    });
    let what = format!("configmap {name:?}");
    files(data, items, optional, mode, &what, |key| {
        format!("configmap references non-existent config key: {key}")
    })
}

fn of_secret(
    name: &str,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
    mode: i32,
    found: &Found,
) -> Result<Files, String> {
    let data = found
        .secret(name)
        .map(|object| bytes(object.data.as_ref()).collect());
    let what = format!("secret {name:?}");
    files(data, items, optional, mode, &what, |key| {
        format!("references non-existent secret key: {key}")
    })
}

fn bytes(data: Option<&BTreeMap<String, ByteString>>) -> impl Iterator<Item = (&str, &[u8])> {
    let data = data.into_iter().flatten();
    data.map(|(key, bytes)| (key.as_str(), bytes.0.as_slice()))
}

/// All keys, or those of `items` by their paths. Without `data` there is no such object.
fn files(
    data: Option<BTreeMap<&str, &[u8]>>,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
    mode: i32,
    what: &str,
    missing: impl Fn(&str) -> String,
) -> Result<Files, String> {
    let optional = optional == Some(true);
    let data = match data {
        None if !optional => return Err(format!("{what} not found")),
        data => data.unwrap_or_default(),
    };
    if data.values().map(|bytes| bytes.len()).sum::<usize>() > MOST_BYTES {
        return Err(format!("{what} holds more than 1 MiB; make it smaller"));
    }
    let items = items.unwrap_or_default();
    if items.is_empty() {
        let files = data
            .iter()
            .map(|(&key, &bytes)| (key.to_owned(), file(bytes.into(), mode)));
        return Ok(files.collect());
    }
    // Each once, however many items show it.
    let mut shared: BTreeMap<&str, Arc<[u8]>> = BTreeMap::new();
    let mut files = Files::new();
    for item in items {
        let key = item.key.as_str();
        match data.get(key) {
            Some(&bytes) => {
                let bytes = shared.entry(key).or_insert_with(|| bytes.into()).clone();
                files.insert(item.path.clone(), file(bytes, item.mode.unwrap_or(mode)));
            }
            None if optional => {}
            None => return Err(missing(key)),
        }
    }
    Ok(files)
}

/// `room` is how many bytes there may still be: a page of manifest can show the same annotations a thousand
/// times.
fn of_downward(
    pod: &Pod,
    items: Option<&[DownwardAPIVolumeFile]>,
    mode: i32,
    location: &Location,
    room: &mut usize,
) -> Result<Files, String> {
    let mut files = Files::new();
    for item in items.unwrap_or_default() {
        let text = if let Some(selector) = &item.field_ref {
            field::of_metadata(pod, &selector.field_path)?
        } else if let Some(selector) = &item.resource_field_ref {
            field::of_resources(pod, None, selector, location)?
        } else {
            return Err(format!(
                "downward API file {:?} has a source that this node does not know; use fieldRef or resourceFieldRef",
                item.path
            ));
        };
        *room = room
            .checked_sub(text.len())
            .ok_or("its files of the downward API hold more than 1 MiB; show fewer fields")?;
        let mode = item.mode.unwrap_or(mode);
        files.insert(item.path.clone(), file(text.as_bytes().into(), mode));
    }
    Ok(files)
}

/// Of all sources; where two have a path, the later one. All errors at once, as the kubelet says them.
fn projected(
    pod: &Pod,
    sources: Option<&[VolumeProjection]>,
    mode: i32,
    found: &Found,
    location: &Location,
) -> Result<Files, String> {
    let mut files = Files::new();
    let mut errors = Vec::new();
    let mut room = MOST_BYTES;
    for source in sources.unwrap_or_default() {
        match projection(pod, source, mode, found, location, &mut room) {
            Ok(more) => files.extend(more),
            Err(error) => {
                if !errors.contains(&error) {
                    errors.push(error);
                }
            }
        }
    }
    match errors.len() {
        0 => Ok(files),
        1 => Err(errors.remove(0)),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}

fn projection(
    pod: &Pod,
    source: &VolumeProjection,
    mode: i32,
    found: &Found,
    location: &Location,
    room: &mut usize,
) -> Result<Files, String> {
    if let Some(source) = &source.secret {
        return of_secret(
            &source.name,
            source.items.as_deref(),
            source.optional,
            mode,
            found,
        );
    }
    if let Some(source) = &source.config_map {
        return of_config_map(
            &source.name,
            source.items.as_deref(),
            source.optional,
            mode,
            found,
        );
    }
    if let Some(source) = &source.downward_api {
        return of_downward(pod, source.items.as_deref(), mode, location, room);
    }
    if let Some(source) = &source.service_account_token {
        let token = TokenSource {
            audience: source.audience.clone().unwrap_or_default(),
            expiration: source.expiration_seconds.unwrap_or(TOKEN_SECONDS),
        };
        let file = File {
            contents: Contents::Token(token),
            mode: permissions(mode),
        };
        return Ok(Files::from([(source.path.clone(), file)]));
    }
    Err(if source.cluster_trust_bundle.is_some() {
        "clusterTrustBundle is not supported on this node; put the certificates into a configMap".to_owned()
    } else {
        "a projected source is not known to this node (podCertificate is not supported); use configMap, secret, \
         downwardAPI or serviceAccountToken"
            .to_owned()
    })
}

fn file(bytes: Arc<[u8]>, mode: i32) -> File {
    File {
        contents: Contents::Bytes(bytes),
        mode: permissions(mode),
    }
}

/// The bits that are permissions.
fn permissions(mode: i32) -> u32 {
    mode.cast_unsigned() & 0o777
}

#[cfg(test)]
mod tests;
