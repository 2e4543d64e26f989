use super::*;

fn passing(name: &str) -> Check {
    Check::new(name, || Ok(()))
}

fn failing(name: &str) -> Check {
    Check::new(name, || Err("no roster yet".to_owned()))
}

#[test]
fn the_texts_are_those_of_the_api_server() {
    let cases = [
        (vec![], "", 200, "ok"),
        (vec![], "verbose", 200, "[+]ping ok\nlivez check passed\n"),
        (vec![passing("a")], "x=1", 200, "ok"),
        (
            vec![passing("a")],
            "verbose=1",
            200,
            "[+]ping ok\n[+]a ok\nlivez check passed\n",
        ),
        (
            vec![passing("a"), failing("b")],
            "",
            500,
            "[+]ping ok\n[+]a ok\n[-]b failed: no roster yet\nlivez check failed\n",
        ),
        (vec![failing("b")], "exclude=b", 200, "ok"),
        (
            vec![failing("b")],
            "verbose&exclude=b",
            200,
            "[+]ping ok\n[+]b excluded: ok\nlivez check passed\n",
        ),
    ];
    for (checks, query, status, text) in cases {
        let (got_status, got_text) = health("livez", &checks, query);
        assert_eq!(
            (got_status.as_u16(), got_text.as_str()),
            (status, text),
            "{query}"
        );
    }
}

#[test]
fn metrics_carry_build_process_and_registered_ones() {
    let admin = Admin::new("agent");
    let sent = admin.register(|registry| {
        let sent = prometheus_client::metrics::counter::Counter::<u64>::default();
        registry.register("evenkeel_sent", "Datagrams sent", sent.clone());
        sent
    });
    sent.inc_by(3);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &admin.lock().metrics).unwrap();
    for line in [
        "evenkeel_build_info{component=\"agent\",version=\"",
        "evenkeel_sent_total 3\n",
        "# TYPE process_cpu_seconds counter\n",
        "process_cpu_seconds_total ",
        "process_resident_memory_bytes ",
        "process_open_fds ",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
}
