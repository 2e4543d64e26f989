//! Archives by the OCI image layout: a tar file with blobs that are named after their SHA-256, and an index.

use super::{Image, Origin, rfc3339};
use anyhow::Context;
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The file system of an image for one architecture: one program.
pub(super) struct Layer {
    architecture: &'static str,
    compressed: Vec<u8>,
    /// The digest of the tar file before compression, by which container runtimes know a file system.
    plain_digest: String,
}

impl Layer {
    /// The program as `/NAME`, owned by root, which nobody may write.
    pub(super) fn of(
        name: &str,
        program: &[u8],
        architecture: &'static str,
        time: u64,
    ) -> anyhow::Result<Self> {
        let mut tar = tar::Builder::new(Vec::new());
        append(&mut tar, name, program, 0o555, time)?;
        let plain = tar.into_inner().context("cannot make a layer")?;
        // The header's time stays 0, and no name is in it: the same input gives the same bytes.
        let mut gzip = GzBuilder::new().write(Vec::new(), Compression::best());
        gzip.write_all(&plain).context("cannot compress")?;
        Ok(Self {
            architecture,
            compressed: gzip.finish().context("cannot compress")?,
            plain_digest: digest(&plain),
        })
    }

    /// Its size when it is pulled, in bytes.
    pub(super) fn size(&self) -> usize {
        self.compressed.len()
    }
}

/// The archive of `image` with one manifest for each of `layers`.
pub(super) fn archive(
    image: &Image,
    reference: &str,
    layers: &[Layer],
    origin: &Origin,
) -> anyhow::Result<Vec<u8>> {
    let mut blobs = Blobs::default();
    let created = rfc3339(origin.time)?;
    let labels = labels(image, origin, &created);
    let mut manifests = Vec::new();
    for layer in layers {
        let platform = json!({"architecture": layer.architecture, "os": "linux"});
        let config = json!({
            "architecture": layer.architecture,
            "os": "linux",
            "created": created,
            "config": {
                "User": image.user,
                "Entrypoint": [format!("/{}", image.name)],
                "WorkingDir": "/",
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [layer.plain_digest]},
        });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": blobs.add(CONFIG, config.to_string().into_bytes()),
            "layers": [blobs.add(LAYER, layer.compressed.clone())],
            "annotations": labels,
        });
        let mut manifest = blobs.add(MANIFEST, manifest.to_string().into_bytes());
        manifest["platform"] = platform;
        manifests.push(manifest);
    }
    // One entry of the archive's index has the name: the only manifest, or an index of several.
    let mut named = if let [only] = &mut manifests[..] {
        only.take()
    } else {
        let index = json!({
            "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": labels,
        });
        blobs.add(INDEX, index.to_string().into_bytes())
    };
    named["annotations"] = json!({
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": origin.version,
    });
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]});
    blobs.tar(&index, origin.time)
}

/// Which build of what this is, by the keys of the OCI image specification.
fn labels(image: &Image, origin: &Origin, created: &str) -> Value {
    let mut labels = json!({
        "org.opencontainers.image.title": image.name,
        "org.opencontainers.image.description": "Keeps Kubernetes workloads running when nodes, links or controllers fail",
        "org.opencontainers.image.version": origin.version,
        "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
        "org.opencontainers.image.created": created,
    });
    if !origin.commit.is_empty() {
        labels["org.opencontainers.image.revision"] = origin.commit.as_str().into();
    }
    labels
}

/// Blobs by their digests.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    /// Takes `bytes`, and describes them for who refers to them.
    fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = digest(&bytes);
        let descriptor = json!({"mediaType": media_type, "digest": digest, "size": bytes.len()});
        self.0.insert(digest, bytes);
        descriptor
    }

    fn tar(&self, index: &Value, time: u64) -> anyhow::Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        append(
            &mut tar,
            "oci-layout",
            br#"{"imageLayoutVersion":"1.0.0"}"#,
            0o444,
            time,
        )?;
        append(&mut tar, "index.json", index.to_string().as_bytes(), 0o444, time)?;
        for (digest, bytes) in &self.0 {
            let path = format!("blobs/{}", digest.replace(':', "/"));
            append(&mut tar, &path, bytes, 0o444, time)?;
        }
        tar.into_inner().context("cannot make an archive")
    }
}

/// A file of root's, with nothing in its header that depends on the machine.
fn append(
    tar: &mut tar::Builder<Vec<u8>>,
    path: &str,
    bytes: &[u8],
    mode: u32,
    time: u64,
) -> anyhow::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes.len() as u64);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(time);
    tar.append_data(&mut header, path, bytes)
        .with_context(|| format!("cannot put {path} into an archive"))
}

/// `sha256:` and the digest in hexadecimal digits.
pub(super) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold("sha256:".to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::IMAGES;
    use std::io::Read as _;

    const TIME: u64 = 1_795_827_762;

    fn made(architectures: &[&'static str]) -> Vec<u8> {
        let layers: Vec<Layer> = architectures
            .iter()
            .map(|architecture| Layer::of("evenkeel", architecture.as_bytes(), architecture, TIME).unwrap())
            .collect();
        let origin = Origin {
            version: "1.2.3",
            commit: "abc".to_owned(),
            time: TIME,
        };
        archive(&IMAGES[0], "localhost/evenkeel:1.2.3", &layers, &origin).unwrap()
    }

    /// The files of an archive, each of which is root's, at the given time, and not to be written.
    fn files(tar: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(tar);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.mtime().unwrap(), TIME);
            assert_eq!(header.mode().unwrap() & 0o7222, 0);
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (entry.path().unwrap().display().to_string(), bytes)
        });
        entries.collect()
    }

    /// What a descriptor points to, whose digest and size hold.
    fn blob(files: &BTreeMap<String, Vec<u8>>, descriptor: &Value) -> Vec<u8> {
        let named = descriptor["digest"].as_str().unwrap();
        let bytes = files[&format!("blobs/{}", named.replace(':', "/"))].clone();
        assert_eq!(digest(&bytes), named);
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    fn read(files: &BTreeMap<String, Vec<u8>>, descriptor: &Value) -> Value {
        serde_json::from_slice(&blob(files, descriptor)).unwrap()
    }

    #[test]
    fn the_same_input_gives_the_same_bytes() {
        assert_eq!(made(&["amd64", "arm64"]), made(&["amd64", "arm64"]));
        assert_ne!(made(&["amd64"]), made(&["arm64"]));
    }

    #[test]
    fn each_architecture_has_its_program_and_nothing_else() {
        let files = files(&made(&["amd64", "arm64"]));
        let top: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let named = &top["manifests"][0];
        assert_eq!(
            named["annotations"]["io.containerd.image.name"],
            "localhost/evenkeel:1.2.3"
        );
        let index = read(&files, named);
        for (number, architecture) in ["amd64", "arm64"].into_iter().enumerate() {
            let descriptor = &index["manifests"][number];
            assert_eq!(descriptor["platform"]["architecture"], architecture);
            let manifest = read(&files, descriptor);
            let config = read(&files, &manifest["config"]);
            assert_eq!(config["config"]["User"], "65532:65532");
            assert_eq!(
                config["config"]["Labels"]["org.opencontainers.image.revision"],
                "abc"
            );
            assert_eq!(config["created"], "2026-11-28T01:02:42Z");
            let mut layer = Vec::new();
            flate2::read::GzDecoder::new(&blob(&files, &manifest["layers"][0])[..])
                .read_to_end(&mut layer)
                .unwrap();
            assert_eq!(config["rootfs"]["diff_ids"][0], digest(&layer));
            let expected = ("evenkeel".to_owned(), architecture.as_bytes().to_vec());
            assert_eq!(self::files(&layer), BTreeMap::from([expected]));
        }
    }

    #[test]
    fn one_architecture_needs_no_second_index() {
        let files = files(&made(&["amd64"]));
        let top: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let manifest = read(&files, &top["manifests"][0]);
        assert_eq!(manifest["mediaType"], MANIFEST);
        assert_eq!(files.len(), 5, "layout, index, manifest, configuration and layer");
    }
}
