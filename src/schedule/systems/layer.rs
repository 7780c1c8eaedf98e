//! Settings over settings: what a user changes of what a system chooses.

use toml::{Table, Value};

/// Fields that name the kind of the table that they are in.
const KINDS: [&str; 5] = ["kind", "unit", "rule", "mode", "when"];

/// Lays changes over a table. A table that says another kind of itself is replaced whole.
pub fn lay_over(table: &mut Table, changes: &Table) {
    for (key, change) in changes {
        match (table.get_mut(key), change) {
            (Some(Value::Table(own)), Value::Table(change)) if is_of_the_kind(change, own) => {
                lay_over(own, change);
            }
            _ => {
                table.insert(key.clone(), change.clone());
            }
        }
    }
}

fn is_of_the_kind(change: &Table, own: &Table) -> bool {
    KINDS.iter().all(|kind| change.get(*kind).is_none_or(|new| own.get(*kind) == Some(new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_go_into_tables_of_their_kind_and_replace_those_of_another() {
        let table = |text: &str| text.parse::<Table>().unwrap();
        let mut own =
            table("size = 1\nend = { rule = 'groups', submit = 4 }\nadmission = { lead = 2, pool = 8 }");
        lay_over(&mut own, &table("admission = { lead = 3 }\nend = { submit = 6 }"));
        let changed = "size = 1\nend = { rule = 'groups', submit = 6 }\nadmission = { lead = 3, pool = 8 }";
        assert_eq!(own, table(changed));
        lay_over(&mut own, &table("end = { rule = 'batch' }"));
        assert_eq!(own["end"], Value::Table(table("rule = 'batch'")));
    }
}
