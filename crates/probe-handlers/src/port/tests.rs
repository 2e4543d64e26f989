use super::*;
use rstest::rstest;

fn container() -> Container {
    Container {
        ports: vec![
            ("foo".into(), 8080),
            ("bar".into(), 9000),
            ("zero".into(), 0),
            ("7".into(), 70),
        ],
        ..Container::default()
    }
}

#[rstest]
#[case::number(Port::Number(443), Ok(443))]
#[case::least(Port::Number(1), Ok(1))]
#[case::most(Port::Number(65535), Ok(65535))]
#[case::zero(Port::Number(0), Err("invalid port number: 0"))]
#[case::negative(Port::Number(-1), Err("invalid port number: -1"))]
#[case::one_too_many(Port::Number(65536), Err("invalid port number: 65536"))]
#[case::far_too_many(Port::Number(66666), Err("invalid port number: 66666"))]
#[case::beyond_all_ports(Port::Number(i64::MIN), Err("invalid port number: -9223372036854775808"))]
#[case::name(Port::Name("foo".into()), Ok(8080))]
#[case::other_name(Port::Name("bar".into()), Ok(9000))]
#[case::case_matters(Port::Name("Foo".into()), Err("strconv.Atoi: parsing \"Foo\": invalid syntax"))]
#[case::named_zero(Port::Name("zero".into()), Err("invalid port number: 0"))]
#[case::name_before_number(Port::Name("7".into()), Ok(70))]
#[case::number_as_text(Port::Name("118".into()), Ok(118))]
#[case::plus(Port::Name("+5".into()), Ok(5))]
#[case::negative_text(Port::Name("-1".into()), Err("invalid port number: -1"))]
#[case::too_great_text(Port::Name("65536".into()), Err("invalid port number: 65536"))]
#[case::empty(Port::Name(String::new()), Err("strconv.Atoi: parsing \"\": invalid syntax"))]
#[case::unknown(Port::Name("http".into()), Err("strconv.Atoi: parsing \"http\": invalid syntax"))]
#[case::space(Port::Name(" 5".into()), Err("strconv.Atoi: parsing \" 5\": invalid syntax"))]
#[case::hexadecimal(Port::Name("0x10".into()), Err("strconv.Atoi: parsing \"0x10\": invalid syntax"))]
#[case::beyond_all_numbers(
    Port::Name("99999999999999999999".into()),
    Err("strconv.Atoi: parsing \"99999999999999999999\": value out of range")
)]
fn a_port_is_a_number_a_name_or_a_number_as_text(#[case] port: Port, #[case] expected: Result<u16, &str>) {
    assert_eq!(resolve(&port, &container()), expected.map_err(str::to_owned));
}

#[test]
fn a_container_without_ports_has_no_names() {
    let result = resolve(&Port::Name("foo".into()), &Container::default());
    assert_eq!(
        result,
        Err("strconv.Atoi: parsing \"foo\": invalid syntax".into())
    );
}
