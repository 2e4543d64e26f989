use super::*;
use crate::plan::Plan;
use evenkeel_vnode::core::pod::Role;
use proptest::prelude::*;
use rstest::rstest;

fn shape(lines: &[&str], interval: u64) -> Shape {
    Shape {
        name: "web".into(),
        part: Role::Regular,
        image: "nginx".into(),
        command: Box::default(),
        env: Box::default(),
        directory: "/".into(),
        mounts: Box::default(),
        ports: Box::default(),
        asked: Box::default(),
        stdin: None,
        tty: false,
        last_words: "".into(),
        cpu: 0,
        memory: 0,
        plan: Plan {
            log: lines.iter().map(|line| (*line).to_owned()).collect(),
            log_interval: Duration::from_secs(interval),
            ..Plan::default()
        },
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn read(output: &Output<'_>, mut cursor: Cursor) -> Vec<String> {
    std::iter::from_fn(|| output.next(&mut cursor))
        .map(|(at, line)| {
            let text = String::from_utf8(line).unwrap();
            format!("{} {}", at.as_second() - 1_000_000, text.trim_end())
        })
        .collect()
}

fn output<'a>(shape: &'a Shape, ring: Option<&'a Ring>, until: i64) -> Output<'a> {
    Output {
        shape,
        pod: "pod",
        started: at(0),
        until: at(until),
        ring,
    }
}

#[test]
fn lines_come_by_the_clock_and_begin_anew_after_the_last() {
    let shape = shape(&["a {n}", "b of {pod}"], 10);
    let output = output(&shape, None, 30);
    assert_eq!(
        read(&output, Cursor::default()),
        ["0 a 1", "10 b of pod", "20 a 3", "30 b of pod"]
    );
}

#[test]
fn without_an_interval_all_lines_come_at_the_start_and_once() {
    let shape = shape(&["a", "b"], 0);
    for until in [0, 1, 1_000_000] {
        assert_eq!(
            read(&output(&shape, None, until), Cursor::default()),
            ["0 a", "0 b"]
        );
    }
    assert_eq!(output(&shape, None, 5).due(&output(&shape, None, 5).end()), None);
}

#[rstest]
#[case(None, None, &["0 x", "5 w1", "10 x", "15 w2", "20 x"])]
#[case(None, Some(2), &["15 w2", "20 x"])]
#[case(None, Some(0), &[])]
#[case(None, Some(99), &["0 x", "5 w1", "10 x", "15 w2", "20 x"])]
#[case(None, Some(4), &["5 w1", "10 x", "15 w2", "20 x"])]
#[case(Some(5), None, &["5 w1", "10 x", "15 w2", "20 x"])]
#[case(Some(10), None, &["10 x", "15 w2", "20 x"])]
#[case(Some(11), None, &["15 w2", "20 x"])]
#[case(Some(11), Some(1), &["20 x"])]
#[case(Some(99), None, &[])]
fn computed_and_written_lines_are_one_log(
    #[case] since: Option<i64>,
    #[case] tail: Option<u64>,
    #[case] expected: &[&str],
) {
    let shape = shape(&["x"], 10);
    let mut ring = Ring::default();
    ring.write(at(5), b"w1\n");
    ring.write(at(15), b"w2\n");
    let output = output(&shape, Some(&ring), 24);
    assert_eq!(read(&output, output.begin(since.map(at), tail)), expected);
    assert_eq!(output.due(&output.end()), Some(at(30)));
}

#[test]
fn the_tail_of_a_year_of_lines_is_found_at_once() {
    let mut shape = shape(&["{n}"], 0);
    shape.plan.log_interval = Duration::from_millis(1);
    let output = output(&shape, None, 31_536_000);
    let lines = read(&output, output.begin(None, Some(2)));
    assert_eq!(lines, ["31535999 31536000000", "31536000 31536000001"]);
}

#[test]
fn a_long_tail_of_a_year_with_an_early_written_line_is_found_at_once() {
    let mut shape = shape(&["{n}"], 0);
    shape.plan.log_interval = Duration::from_millis(1);
    let mut ring = Ring::default();
    ring.write(at(1), b"w\n");
    let output = output(&shape, Some(&ring), 31_536_000);
    let all = 31_536_000_001 + 1;
    assert_eq!(output.begin(None, Some(u64::MAX)), Cursor::default());
    assert_eq!(output.begin(None, Some(all)), Cursor::default());
    // The written line stands after 1,001 computed ones.
    let after = |computed, written| Cursor { computed, written };
    assert_eq!(output.begin(None, Some(all - 1000)), after(1000, 0));
    assert_eq!(output.begin(None, Some(all - 1001)), after(1001, 0));
    assert_eq!(output.begin(None, Some(all - 1002)), after(1001, 1));
    assert_eq!(output.begin(None, Some(all - 1003)), after(1002, 1));
}

#[test]
fn a_ring_keeps_the_last_and_divides_what_is_too_long() {
    let mut ring = Ring::default();
    ring.write(at(0), &vec![b'x'; Ring::LINE * 2 + 1]);
    assert_eq!(ring.lines.len(), 2);
    ring.end_line(at(0));
    assert_eq!(ring.lines.len(), 3);
    for _ in 0..100 {
        ring.write(at(1), &[&vec![b'y'; 9_999][..], b"\n"].concat());
    }
    assert!(ring.bytes <= Ring::BYTES);
    assert_eq!(ring.end(), 103);
    assert_eq!(
        ring.lines.iter().map(|(_, line)| line.len()).sum::<usize>(),
        ring.bytes
    );
}

proptest! {
    #[test]
    fn a_tail_is_the_end_of_the_whole(
        written in proptest::collection::vec(0i64..100, 0..20),
        interval in 0u64..20,
        until in 0i64..100,
        since in proptest::option::of(-5i64..110),
        tail in 0u64..40,
    ) {
        let shape = shape(&["a", "b"], interval);
        let mut ring = Ring::default();
        let mut written: Vec<i64> = written.into_iter().filter(|second| *second <= until).collect();
        written.sort_unstable();
        for second in &written {
            ring.write(at(*second), b"w\n");
        }
        let output = output(&shape, Some(&ring), until);
        let whole = read(&output, output.begin(None, None));
        let recent: Vec<String> = whole
            .iter()
            .filter(|line| since.is_none_or(|since| line.split(' ').next().unwrap().parse::<i64>().unwrap() >= since))
            .cloned()
            .collect();
        let since = since.map(at);
        prop_assert_eq!(&read(&output, output.begin(since, None)), &recent);
        let skipped = recent.len().saturating_sub(usize::try_from(tail).unwrap());
        prop_assert_eq!(&read(&output, output.begin(since, Some(tail)))[..], &recent[skipped..]);
    }
}
