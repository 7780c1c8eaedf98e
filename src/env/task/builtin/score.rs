//! Grades of answers whose text is known.

use crate::trajectory::Reward;

/// 1 when the reply, without the white space around it, is what was expected. Otherwise 0, or with `partial` the share
/// of characters that stand in their place.
pub(super) fn text(expected: &str, reply: &str, partial: bool) -> Reward {
    let reply = reply.trim();
    let exact = f64::from(u8::from(reply == expected));
    if !partial {
        return Reward::of(exact);
    }
    let in_place = in_place(expected, reply);
    Reward { value: in_place, parts: vec![("exact".into(), exact), ("in_place".into(), in_place)] }
}

/// Characters that stand in their place, as a share of the longer of both texts: 1 for equal texts only.
fn in_place(expected: &str, reply: &str) -> f64 {
    let right = expected.chars().zip(reply.chars()).filter(|(left, right)| left == right).count();
    let longer = expected.chars().count().max(reply.chars().count());
    if longer == 0 { 1.0 } else { right as f64 / longer as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_credit_counts_characters_in_place_and_too_long_a_reply_costs() {
        let cases = [
            ("abcd", 1.0),
            ("abxd", 0.75),
            ("abcdabcd", 0.5),
            ("ab", 0.5),
            ("", 0.0),
            (" abcd\n", 1.0),
            ("bcda", 0.0),
        ];
        for (reply, expected) in cases {
            assert_eq!(text("abcd", reply, true).value, expected, "{reply:?}");
            assert_eq!(text("abcd", reply, false).value, f64::from(u8::from(expected == 1.0)), "{reply:?}");
        }
        assert_eq!(text("äö", "äx", true).value, 0.5);
    }
}
