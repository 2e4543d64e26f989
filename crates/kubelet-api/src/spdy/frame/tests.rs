use super::*;
use proptest::prelude::*;
use rstest::rstest;

fn encoded(frame: &Frame) -> BytesMut {
    let mut bytes = BytesMut::new();
    Encoder::default().encode(frame, &mut bytes);
    bytes
}

#[rstest]
#[case(Frame::RstStream { stream: 3, status: reset::CANCEL }, "80030003 00000008 00000003 00000005")]
#[case(Frame::Settings { clear: true, values: vec![(1, 7, 65536)] },
    "80030004 0100000c 00000001 01000007 00010000")]
#[case(Frame::Ping(1), "80030006 00000004 00000001")]
#[case(Frame::GoAway { last: 5, status: 1 }, "80030007 00000008 00000005 00000001")]
#[case(Frame::WindowUpdate { stream: 9, delta: 258 }, "80030009 00000008 00000009 00000102")]
#[case(Frame::Data { stream: 5, fin: true, data: Bytes::from_static(b"hi") }, "00000005 01000002 6869")]
#[case(Frame::Data { stream: 7, fin: true, data: Bytes::new() }, "00000007 01000000")]
fn frames_are_written_as_the_draft_says(#[case] frame: Frame, #[case] hex: &str) {
    let digits: String = hex.split_whitespace().collect();
    let wanted: Vec<u8> = (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let mut bytes = encoded(&frame);
    assert_eq!(bytes.as_ref(), wanted);
    assert_eq!(Decoder::default().decode(&mut bytes), Ok(Some(frame)));
    assert!(bytes.is_empty());
}

/// SYN_STREAM of an exec's error stream, recorded from the library that Kubernetes' clients are built with.
#[test]
fn a_stream_of_the_go_library_is_read() {
    let recorded = b"\x80\x03\x00\x01\x00\x00\x00\x29\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\
        \x78\xf9\xe3\xc6\xa7\xc2\x62\x60\x60\x60\x04\xa7\xb3\x92\xa2\xd4\xc4\x5c\x68\x51\xc2\x9a\x0a\x0a\x68\
        \x00\x00\x00\x00\xff\xff";
    let mut bytes = BytesMut::from(&recorded[..]);
    let wanted = Frame::SynStream {
        stream: 1,
        associated: 0,
        priority: 0,
        fin: false,
        unidirectional: false,
        headers: Headers::from([("streamtype", "error")]),
    };
    assert_eq!(Decoder::default().decode(&mut bytes), Ok(Some(wanted)));
}

#[rstest]
#[case(b"\x80\x02\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01", FrameError::Version(2))]
#[case(
    b"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x00",
    FrameError::ZeroStream(6)
)]
#[case(b"\x80\x03\x00\x06\x00\x00\x00\x03\x00\x00\x00", FrameError::Length { kind: 6, length: 3 })]
#[case(
    b"\x80\x03\x00\x03\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x01",
    FrameError::ZeroStream(3)
)]
#[case(b"\x80\x03\x00\x01\x00\x00\x00\x02\x00\x00", FrameError::Length { kind: 1, length: 2 })]
#[case(b"\x80\x03\x00\x04\x00\x00\x00\x04\xff\xff\xff\xff", FrameError::Length { kind: 4, length: 4 })]
#[case(b"\x80\x03\x00\x08\x00\xff\xff\xff", FrameError::TooLong { kind: 8, length: 0xff_ffff })]
fn wrong_frames_are_refused(#[case] bytes: &[u8], #[case] error: FrameError) {
    let mut bytes = BytesMut::from(bytes);
    assert_eq!(Decoder::default().decode(&mut bytes), Err(error));
}

#[test]
fn unknown_control_frames_are_passed_over() {
    let mut bytes = BytesMut::from(
        &b"\x80\x03\x00\x0b\x00\x00\x00\x02ab\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01"[..],
    );
    let mut decoder = Decoder::default();
    assert_eq!(decoder.decode(&mut bytes), Ok(Some(Frame::Unknown { kind: 11 })));
    assert_eq!(decoder.decode(&mut bytes), Ok(Some(Frame::Ping(1))));
    assert_eq!(decoder.decode(&mut bytes), Ok(None));
}

#[test]
fn data_is_handed_out_as_it_comes() {
    let mut bytes = encoded(&Frame::Data {
        stream: 3,
        fin: true,
        data: Bytes::from_static(b"abcdef"),
    });
    let mut rest = bytes.split_off(HEAD + 4);
    let mut decoder = Decoder::default();
    let piece = |fin, data: &'static [u8]| Frame::Data {
        stream: 3,
        fin,
        data: Bytes::from_static(data),
    };
    assert_eq!(decoder.decode(&mut bytes), Ok(Some(piece(false, b"abcd"))));
    assert_eq!(decoder.decode(&mut bytes), Ok(None));
    assert_eq!(decoder.decode(&mut rest), Ok(Some(piece(true, b"ef"))));
    assert_eq!(decoder.decode(&mut rest), Ok(None));
}

fn headers() -> impl Strategy<Value = Headers> {
    prop::collection::btree_map("[a-z]{1,12}", ".{0,60}", 0..6)
        .prop_map(|map| Headers(map.into_iter().collect()))
}

fn frames() -> impl Strategy<Value = Frame> {
    let stream = 1u32..0x7fff_ffff;
    prop_oneof![
        (
            stream.clone(),
            0u32..9,
            0u8..8,
            any::<bool>(),
            any::<bool>(),
            headers()
        )
            .prop_map(|(stream, associated, priority, fin, unidirectional, headers)| {
                Frame::SynStream {
                    stream,
                    associated,
                    priority,
                    fin,
                    unidirectional,
                    headers,
                }
            }),
        (stream.clone(), any::<bool>(), headers()).prop_map(|(stream, fin, headers)| Frame::SynReply {
            stream,
            fin,
            headers
        }),
        (stream.clone(), any::<bool>(), headers()).prop_map(|(stream, fin, headers)| Frame::Headers {
            stream,
            fin,
            headers
        }),
        (stream.clone(), any::<u32>()).prop_map(|(stream, status)| Frame::RstStream { stream, status }),
        (
            any::<bool>(),
            prop::collection::vec((any::<u8>(), 0u32..0x100_0000, any::<u32>()), 0..9)
        )
            .prop_map(|(clear, values)| Frame::Settings { clear, values }),
        (1u32..).prop_map(Frame::Ping),
        (stream.clone(), any::<u32>()).prop_map(|(last, status)| Frame::GoAway { last, status }),
        (stream.clone(), 0u32..0x7fff_ffff).prop_map(|(stream, delta)| Frame::WindowUpdate { stream, delta }),
        (stream, any::<bool>(), prop::collection::vec(any::<u8>(), 0..300)).prop_map(
            |(stream, fin, data)| {
                Frame::Data {
                    stream,
                    fin,
                    data: data.into(),
                }
            }
        ),
    ]
}

/// Pieces of one data frame made one again.
fn joined(frames: Vec<Frame>) -> Vec<Frame> {
    let mut all: Vec<Frame> = Vec::new();
    let mut open = None;
    for frame in frames {
        match (frame, &mut open) {
            (
                Frame::Data { fin, data, .. },
                Some(Frame::Data {
                    fin: last,
                    data: before,
                    ..
                }),
            ) => {
                *before = [before.as_ref(), &data].concat().into();
                *last = fin;
            }
            (frame @ Frame::Data { .. }, open) => *open = Some(frame),
            (frame, open) => {
                all.extend(open.take());
                all.push(frame);
            }
        }
    }
    all.extend(open);
    all
}

proptest! {
    #[test]
    fn frames_survive_the_way_in_pieces(frames in prop::collection::vec(frames(), 1..8), step in 1usize..40) {
        let (mut encoder, mut wire) = (Encoder::default(), BytesMut::new());
        // A ping between data frames keeps their pieces apart.
        let apart: Vec<Frame> = frames.into_iter().flat_map(|frame| [frame, Frame::Ping(1)]).collect();
        for frame in &apart {
            encoder.encode(frame, &mut wire);
        }
        let (mut decoder, mut read, mut buffer) = (Decoder::default(), Vec::new(), BytesMut::new());
        for piece in wire.chunks(step) {
            buffer.extend_from_slice(piece);
            while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
                read.push(frame);
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(joined(read), apart);
    }

    #[test]
    fn random_bytes_neither_panic_nor_wait_for_more_than_the_bound(
        bytes in prop::collection::vec(any::<u8>(), 0..4000),
        control in any::<bool>(),
    ) {
        let mut bytes = BytesMut::from(bytes.as_slice());
        if control && bytes.len() > 4 {
            let kind = bytes[3] % 10;
            bytes[..4].copy_from_slice(&[0x80, 3, 0, kind]);
        }
        let mut decoder = Decoder::default();
        while let Ok(Some(frame)) = decoder.decode(&mut bytes) {
            if let Frame::SynStream { headers, .. } = frame {
                prop_assert!(headers.0.iter().map(|(n, v)| n.len() + v.len()).sum::<usize>() <= LONGEST);
            }
        }
    }
}
