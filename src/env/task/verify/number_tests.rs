use super::*;

fn exactly(number: Option<Number>) -> Option<Rational> {
    number.map(|number| number.value.expect("the number fits"))
}

#[test]
fn a_number_is_read_however_it_is_written() {
    let cases = [
        ("42", 42, 1),
        (" 42.\n", 42, 1),
        ("042", 42, 1),
        ("-7", -7, 1),
        ("+7", 7, 1),
        ("−7", -7, 1),
        ("1,234,567", 1_234_567, 1),
        ("-1,234.5", -2469, 2),
        ("1_000", 1000, 1),
        ("1'000", 1000, 1),
        ("1\u{202f}000", 1000, 1),
        ("1{,}000", 1000, 1),
        ("12\\,345", 12345, 1),
        ("3.140", 157, 50),
        (".5", 1, 2),
        ("-.5", -1, 2),
        ("0.10", 1, 10),
        ("5.000000000000000000000000000000000000000000000000000000", 5, 1),
        ("000000000000000000000000000000000000000000000000000000005", 5, 1),
        ("3/4", 3, 4),
        ("-3/4", -3, 4),
        ("3 / 4", 3, 4),
        ("0.5/1.5", 1, 3),
        ("1 1/2", 3, 2),
        ("-1 1/2", -3, 2),
        ("\\frac{3}{4}", 3, 4),
        ("-\\dfrac{1}{2}", -1, 2),
        ("\\frac{-1}{2}", -1, 2),
        ("2\\frac{1}{2}", 5, 2),
        ("$5", 5, 1),
        ("-$5", -5, 1),
        ("$-5", -5, 1),
        ("\\$5.50", 11, 2),
        ("$\\frac{1}{2}$", 1, 2),
        ("1e3", 1000, 1),
        ("2.5E-1", 1, 4),
        ("1.5×10^3", 1500, 1),
        ("1.5 \\times 10^{-3}", 3, 2000),
        ("1e30", 1_000_000_000_000_000_000_000_000_000_000, 1),
        ("**42**", 42, 1),
        ("\"42\"", 42, 1),
        ("50%", 50, 1),
        ("50 percent", 50, 1),
    ];
    for (text, numerator, denominator) in cases {
        let expected = Rational::new(numerator, denominator);
        assert_eq!(exactly(whole_number(text)), expected, "whole {text:?}");
        assert_eq!(exactly(last_number(text)), expected, "last {text:?}");
    }
}

#[test]
fn the_last_number_of_a_text_is_found() {
    let cases = [
        ("The answer is 68.", 68, 1),
        ("23+45=68", 68, 1),
        ("5-3", 3, 1),
        ("5 - 3", 3, 1),
        ("(5)-3", 3, 1),
        ("x = -3", -3, 1),
        ("x=-3", -3, 1),
        ("first 12, then 13", 13, 1),
        ("1, 2, 3", 3, 1),
        ("1,2", 2, 1),
        ("between 10-20", 20, 1),
        ("1..100", 100, 1),
        ("5km", 5, 1),
        ("7 apples of type H2O", 7, 1),
        ("7 by x_2", 7, 1),
        ("7 in version 1.2.3", 7, 1),
        ("it costs $1,299.99!", 129_999, 100),
        ("\\boxed{42}", 42, 1),
        ("#### 42", 42, 1),
        ("on 1/2/2024", 2024, 1),
        ("4/0", 0, 1),
        ("3 1/2 cups", 7, 2),
        ("1,234,56", 56, 1),
        ("1234,567", 567, 1),
        ("3e", 3, 1),
        ("3 even", 3, 1),
        ("about 3.", 3, 1),
        ("a share of 12.5%.", 25, 2),
    ];
    for (text, numerator, denominator) in cases {
        assert_eq!(exactly(last_number(text)), Rational::new(numerator, denominator), "{text:?}");
    }
}

#[test]
fn what_is_no_number_is_none() {
    for text in
        ["", " ", "none", "-", ".", "$", "x2", "H2O", "1.2.3", "%", "NaN", "infinity", "\\frac{a}{b}", "½"]
    {
        assert_eq!(last_number(text), None, "{text:?}");
        assert_eq!(whole_number(text), None, "{text:?}");
    }
    for text in ["4 apples", "x = 4", "1 2", "4, 5", "4/0", "5-3", "1,23", "1/2/3", "4..", "--4"] {
        assert_eq!(whole_number(text), None, "{text:?}");
    }
}

#[test]
fn a_percent_sign_means_a_share_or_the_number_written() {
    let number = |text| last_number(text).unwrap();
    let equal = |left, right| number(left).equals(&number(right), Rational::ZERO);
    for (left, right, expected) in [
        ("50%", "50%", true),
        ("50%", "0.5", true),
        ("0.5", "50%", true),
        ("50%", "1/2", true),
        ("50%", "50", true),
        ("50%", "0.5%", false),
        ("50%", "5000", false),
        ("0.5", "50", false),
    ] {
        assert_eq!(equal(left, right), expected, "{left} {right}");
    }
}

#[test]
fn comparison_is_exact_and_the_tolerance_is_inclusive() {
    let equal = |left: &str, right: &str, tolerance| {
        last_number(left).unwrap().equals(&last_number(right).unwrap(), tolerance)
    };
    let tenth = Rational::new(1, 10).unwrap();
    assert!(equal("1/3", "2/6", Rational::ZERO));
    assert!(!equal("1/3", "0.3333333333333333", Rational::ZERO));
    assert!(!equal("9007199254740993", "9007199254740992", Rational::ZERO));
    assert!(equal("0.3", "0.2", tenth) && equal("0.2", "0.3", tenth));
    assert!(!equal("0.30000000000000000001", "0.2", tenth));
    assert!(equal("1/3", "0.3333", tenth) && !equal("-1/3", "1/3", tenth));
}

#[test]
fn a_number_too_large_to_be_exact_equals_nothing_and_is_not_passed_over() {
    let large = "1".repeat(60);
    let number = last_number(&format!("5 or {large}")).unwrap();
    assert!(!number.is_exact() && !number.is(Rational::integer(5)) && number.to_f64() > 1e58);
    assert!(!number.equals(&number, Rational::ZERO));
    assert!(!last_number("1e999999999999").unwrap().is_exact());
    assert!(!last_number("1e-99999").unwrap().is_exact());
    assert!(exactly(last_number("0e99999")).is_some());
}

#[test]
fn any_text_is_read_without_failing() {
    use proptest::prelude::*;
    proptest!(|(text in "[-+$%./,0-9ex ×^{}\\\\fracé]{0,24}")| {
        let _ = (last_number(&text), whole_number(&text));
    });
}

proptest::proptest! {
    #[test]
    fn whole_numbers_are_read_back_with_and_without_separators(value in -1_000_000_000_000_i64..1_000_000_000_000) {
        let digits = value.abs().to_string();
        let mut separated = String::new();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                separated.push(',');
            }
            separated.push(digit);
        }
        let sign = if value < 0 { "-" } else { "" };
        for text in [format!("{sign}{digits}"), format!("{sign}{separated}"), format!("so it is {sign}{separated}.")] {
            assert_eq!(exactly(last_number(&text)), Some(Rational::integer(value)));
        }
    }
}
