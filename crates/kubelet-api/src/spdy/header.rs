//! Header blocks: names and values, compressed over the whole life of a connection.

use super::dictionary::DICTIONARY;
use super::frame::FrameError;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// The longest header block, unpacked. Kubernetes' clients send some hundred bytes.
pub(super) const LONGEST: usize = 64 * 1024;
/// So many headers at most.
const MOST: usize = 256;

/// Names and values as sent; names are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// The value of a header, whatever the case of its name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Headers {
    fn from(pairs: [(&str, &str); N]) -> Self {
        let owned = |(name, value): (&str, &str)| (name.to_ascii_lowercase(), value.to_owned());
        Self(pairs.into_iter().map(owned).collect())
    }
}

/// Unpacks header blocks.
pub(super) struct Inflater(Decompress);

impl Inflater {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// Reads one block. After an error the connection's compression state is lost.
    pub(super) fn read(&mut self, block: &[u8]) -> Result<Headers, FrameError> {
        parse(&self.inflate(block)?)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, FrameError> {
        let mut plain = Vec::with_capacity(1024);
        loop {
            let (read, written) = (self.0.total_in(), self.0.total_out());
            let status = match self.0.decompress_vec(block, &mut plain, FlushDecompress::Sync) {
                Ok(status) => status,
                Err(error) if error.needs_dictionary().is_some() => {
                    // Wanted once, in front of the first block.
                    self.0
                        .set_dictionary(&DICTIONARY)
                        .map_err(|_| FrameError::Compression)?;
                    Status::Ok
                }
                Err(_) => return Err(FrameError::Compression),
            };
            let consumed = (self.0.total_in() - read) as usize;
            block = block.get(consumed..).ok_or(FrameError::Compression)?;
            if status == Status::StreamEnd {
                // The stream lasts as long as the connection.
                return Err(FrameError::Compression);
            }
            if plain.len() == plain.capacity() {
                if plain.len() >= LONGEST {
                    return Err(FrameError::HeadersTooLong);
                }
                plain.reserve_exact(plain.len().min(LONGEST - plain.len()));
            } else if block.is_empty() {
                return Ok(plain);
            } else if consumed == 0 && self.0.total_out() == written {
                return Err(FrameError::Compression);
            }
        }
    }
}

/// Packs header blocks.
pub(super) struct Deflater(Compress);

impl Deflater {
    pub(super) fn new() -> Self {
        let mut compress = Compress::new(Compression::best(), true);
        compress
            .set_dictionary(&DICTIONARY)
            .expect("a fresh compressor takes a dictionary");
        Self(compress)
    }

    pub(super) fn write(&mut self, headers: &Headers) -> Vec<u8> {
        let mut plain = Vec::new();
        plain.extend_from_slice(&(headers.0.len() as u32).to_be_bytes());
        for text in headers.0.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend_from_slice(&(text.len() as u32).to_be_bytes());
            plain.extend_from_slice(text.as_bytes());
        }
        let mut packed = Vec::with_capacity(plain.len() + 64);
        let mut rest = plain.as_slice();
        loop {
            let read = self.0.total_in();
            self.0
                .compress_vec(rest, &mut packed, FlushCompress::Sync)
                .expect("a compressor takes whatever it is given");
            rest = &rest[(self.0.total_in() - read) as usize..];
            // A flush is complete when it leaves room.
            if rest.is_empty() && packed.len() < packed.capacity() {
                return packed;
            }
            packed.reserve(packed.capacity());
        }
    }
}

fn parse(mut plain: &[u8]) -> Result<Headers, FrameError> {
    let count = number(&mut plain)?;
    if count > MOST {
        return Err(FrameError::HeadersTooLong);
    }
    let mut headers: Vec<(String, String)> = Vec::with_capacity(count);
    for _ in 0..count {
        let name = text(&mut plain)?;
        let value = text(&mut plain)?;
        let lower = !name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase());
        if !lower || headers.iter().any(|(known, _)| *known == name) {
            return Err(FrameError::Headers);
        }
        headers.push((name, value));
    }
    if plain.is_empty() {
        Ok(Headers(headers))
    } else {
        Err(FrameError::Headers)
    }
}

fn number(plain: &mut &[u8]) -> Result<usize, FrameError> {
    let (number, rest) = plain.split_first_chunk().ok_or(FrameError::Headers)?;
    *plain = rest;
    Ok(u32::from_be_bytes(*number) as usize)
}

fn text(plain: &mut &[u8]) -> Result<String, FrameError> {
    let length = number(plain)?;
    let (text, rest) = plain.split_at_checked(length).ok_or(FrameError::Headers)?;
    *plain = rest;
    String::from_utf8(text.to_vec()).map_err(|_| FrameError::Headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_share_one_compression_state() {
        let (mut deflater, mut inflater) = (Deflater::new(), Inflater::new());
        let headers = Headers::from([("streamType", "stdin"), ("port", "8080")]);
        let first = deflater.write(&headers);
        let second = deflater.write(&headers);
        assert!(second.len() < first.len());
        assert_eq!(inflater.read(&first), Ok(headers.clone()));
        assert_eq!(inflater.read(&second), Ok(headers.clone()));
        assert_eq!(headers.get("streamtype"), Some("stdin"));
        assert_eq!(headers.get("streamType"), Some("stdin"));
        assert_eq!(headers.get("none"), None);
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let bomb = Headers(vec![("a".to_owned(), "x".repeat(64 * 1024 * 1024))]);
        let packed = Deflater::new().write(&bomb);
        assert!(packed.len() < 128 * 1024);
        let mut inflater = Inflater::new();
        assert_eq!(inflater.read(&packed), Err(FrameError::HeadersTooLong));
        assert!(inflater.0.total_out() <= LONGEST as u64);
    }

    #[test]
    fn a_block_that_fills_its_bound_passes() {
        let headers = Headers(vec![("a".to_owned(), "x".repeat(LONGEST - 14))]);
        let packed = Deflater::new().write(&headers);
        assert_eq!(Inflater::new().read(&packed), Ok(headers));
    }

    #[test]
    fn names_in_upper_case_and_repeated_names_are_refused() {
        for wrong in [vec![("A", "1")], vec![("a", "1"), ("a", "2")], vec![("", "1")]] {
            let headers = wrong.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned()));
            let packed = Deflater::new().write(&Headers(headers.collect()));
            assert_eq!(Inflater::new().read(&packed), Err(FrameError::Headers));
        }
    }

    proptest! {
        #[test]
        fn whatever_is_packed_is_unpacked(
            blocks in prop::collection::vec(prop::collection::btree_map("[a-z:-]{1,20}", ".{0,300}", 0..20), 1..5),
        ) {
            let (mut deflater, mut inflater) = (Deflater::new(), Inflater::new());
            for block in blocks {
                let headers = Headers(block.into_iter().collect());
                prop_assert_eq!(inflater.read(&deflater.write(&headers)), Ok(headers));
            }
        }

        #[test]
        fn random_bytes_are_refused_and_no_more(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let _ = Inflater::new().read(&bytes);
            let _ = parse(&bytes);
        }

        #[test]
        fn a_damaged_block_is_survived(at in 0usize..200, to in any::<u8>()) {
            let headers = Headers::from([("streamtype", "data"), ("port", "80"), ("requestid", "7")]);
            let mut packed = Deflater::new().write(&headers);
            let at = at % packed.len();
            packed[at] = to;
            let _ = Inflater::new().read(&packed);
        }
    }
}
