//! Pods and statuses at rest: JSON, deflated with a dictionary of what all pods have in common.
//!
//! A typed [`Pod`] of one container takes about 10 KiB of memory; its JSON 3 to 4 KiB; deflated with the
//! dictionary below 1 KiB. Packing costs about as much processor time as encoding does.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

/// An object at rest. Clones share the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Packed<T> {
    bytes: Arc<[u8]>,
    /// Length of the JSON.
    length: u32,
    object: PhantomData<fn() -> T>,
}

/// Why an object cannot be unpacked; it was packed by this process, so that it is a defect of ours.
#[derive(Debug, thiserror::Error)]
#[error("a packed object of {length} bytes cannot be unpacked: {reason}")]
pub(crate) struct Damaged {
    length: u32,
    reason: String,
}

/// Texts that most pods hold. What is likeliest stands at the end: deflate reaches back more cheaply over
/// short ways.
const DICTIONARY: &[u8] = include_bytes!("dictionary.json");

thread_local! {
    // The state of a compressor is 256 KiB; making one for each pod would cost more than the packing.
    static DEFLATE: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), true));
    static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(true));
}

impl<T: Serialize + DeserializeOwned> Packed<T> {
    /// Packs an object.
    pub(crate) fn new(object: &T) -> Self {
        let json = serde_json::to_vec(object).expect("objects have string keys alone, and so are JSON");
        let length = u32::try_from(json.len()).expect("the API server takes no object of 4 GiB");
        let bytes = DEFLATE.with_borrow_mut(|deflate| deflated(deflate, &json));
        Self {
            bytes: bytes.map_or_else(|| json.into(), Into::into),
            length,
            object: PhantomData,
        }
    }

    pub(crate) fn open(&self) -> Result<T, Damaged> {
        let damaged = |reason: String| Damaged {
            length: self.length,
            reason,
        };
        // What did not get shorter is not deflated.
        if self.bytes.len() == self.length as usize {
            return serde_json::from_slice(&self.bytes).map_err(|error| damaged(error.to_string()));
        }
        let json = INFLATE
            .with_borrow_mut(|inflate| inflated(inflate, &self.bytes, self.length as usize))
            .map_err(|error| damaged(error.to_string()))?;
        serde_json::from_slice(&json).map_err(|error| damaged(error.to_string()))
    }

    /// Bytes that it takes, without the pointer to them.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// `None` where it would not get shorter.
fn deflated(deflate: &mut Compress, json: &[u8]) -> Option<Vec<u8>> {
    deflate.reset();
    deflate.set_dictionary(DICTIONARY).ok()?;
    let mut packed = Vec::with_capacity(json.len());
    let status = deflate
        .compress_vec(json, &mut packed, FlushCompress::Finish)
        .ok()?;
    (status == flate2::Status::StreamEnd && packed.len() < json.len()).then_some(packed)
}

fn inflated(
    inflate: &mut Decompress,
    packed: &[u8],
    length: usize,
) -> Result<Vec<u8>, flate2::DecompressError> {
    inflate.reset(true);
    let mut json = Vec::with_capacity(length);
    // The stream names its dictionary and stops there to be given it.
    if let Err(error) = inflate.decompress_vec(packed, &mut json, FlushDecompress::Finish) {
        if error.needs_dictionary().is_none() {
            return Err(error);
        }
        inflate.set_dictionary(DICTIONARY)?;
        let read = inflate.total_in() as usize;
        inflate.decompress_vec(&packed[read..], &mut json, FlushDecompress::Finish)?;
    }
    Ok(json)
}

#[cfg(test)]
pub(super) mod tests;
