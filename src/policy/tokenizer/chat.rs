//! Chat templates: messages to text, as the model was taught to read them.
//!
//! Templates are Jinja as `transformers` runs it: blocks swallow the line break after them and the blanks before them,
//! strings and maps have Python's methods, `raise_exception` refuses a chat, `tojson` writes what Python's `json` does.
//! One thing differs on purpose: there is no `strftime_now`, so a template that asks whether there is one takes its
//! fixed date, and the same chat gives the same text every day.

use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde::Serialize;

use super::TokenizerError;
use crate::trajectory::Message;

const NAME: &str = "chat";

/// A parsed chat template.
#[derive(Debug)]
pub(super) struct ChatTemplate {
    source: String,
    environment: Environment<'static>,
}

impl ChatTemplate {
    pub(super) fn new(source: &str) -> Result<Self, TokenizerError> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |why: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, why))
        });
        environment.add_filter("tojson", to_json);
        environment.add_template_owned(NAME, without_generation_marks(source)).map_err(|e| refused(&e))?;
        Ok(Self { source: source.to_owned(), environment })
    }

    /// The template as it was given.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The text of a chat. `specials` are the variables that name special tokens, such as `bos_token`.
    pub(super) fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        specials: &[(&'static str, &str)],
    ) -> Result<String, TokenizerError> {
        let specials: Value = specials.iter().copied().collect();
        let context = minijinja::context! {
            messages, add_generation_prompt, tools => Value::from(()), documents => Value::from(()), ..specials
        };
        let template = self.environment.get_template(NAME).map_err(|error| refused(&error))?;
        template.render(context).map_err(|error| refused(&error))
    }
}

fn refused(error: &Error) -> TokenizerError {
    let why = error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned);
    TokenizerError::Template { line: error.line(), why }
}

/// `{% generation %}` marks what an assistant said, for masks of the loss; it changes no text, and is an extension
/// that only `transformers` has.
fn without_generation_marks(source: &str) -> String {
    let mark = |name, with| {
        let pattern = format!(r"\{{%([-+]?)\s*{name}\s*([-+]?)%\}}");
        (regex::Regex::new(&pattern), format!("{{%$1 {with} $2%}}"))
    };
    let marks = [mark("generation", "if true"), mark("endgeneration", "endif")];
    marks.into_iter().fold(source.to_owned(), |source, (pattern, with)| match pattern {
        Ok(pattern) => pattern.replace_all(&source, with.as_str()).into_owned(),
        Err(_) => source,
    })
}

/// JSON with Python's spaces, and no escapes for HTML.
#[allow(clippy::needless_pass_by_value, reason = "filters take their options by value")]
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut bytes = Vec::new();
    let written = if let Some(indent) = indent {
        let blanks = " ".repeat(indent);
        let pretty = serde_json::ser::PrettyFormatter::with_indent(blanks.as_bytes());
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, pretty))
    } else {
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Spaced))
    };
    let invalid = |error: String| Error::new(ErrorKind::BadSerialization, error);
    written.map_err(|error| invalid(error.to_string()))?;
    String::from_utf8(bytes).map(Value::from_safe_string).map_err(|error| invalid(error.to_string()))
}

/// Python's `json.dumps`: a space after commas and colons.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str, messages: &[Message]) -> Result<String, TokenizerError> {
        ChatTemplate::new(source)?.render(messages, true, &[("bos_token", "<s>")])
    }

    #[test]
    fn blocks_take_their_line_with_them() {
        let source = "{{ bos_token }}\n  {% for m in messages %}\n{{ m.role }}: {{ m['content'] }}\n  {% endfor %}\nend";
        assert_eq!(
            render(source, &[Message::user("a"), Message::assistant("b")]).unwrap(),
            "<s>\nuser: a\nassistant: b\nend"
        );
    }

    #[test]
    fn pythons_methods_slices_and_namespaces_work() {
        let source = "{% set ns = namespace(n=0) %}{% for m in messages[1:] %}{% set ns.n = ns.n + 1 %}\
            {{ m.content.split('</think>')[-1].lstrip('\\n').strip() }}{% endfor %}{{ ns.n }}\
            {% if messages[0]['content'].startswith('s') %}!{% endif %}{{ messages[0].get('tool_calls', 'none') }}";
        let messages = [Message::user("sys"), Message::assistant("<think>x</think>\n\n y ")];
        assert_eq!(render(source, &messages).unwrap(), "y1!none");
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        let source = "{{ {'a': [1, 'é<b>'], 'b': none} | tojson }}{{ {'a': 1} | tojson(indent=2) }}";
        assert_eq!(render(source, &[]).unwrap(), "{\"a\": [1, \"é<b>\"], \"b\": null}{\n  \"a\": 1\n}");
    }

    #[test]
    fn marks_of_generated_text_change_nothing() {
        let source =
            "{% for m in messages %}[{% generation %}{{ m.content }}{%- endgeneration -%}]{% endfor %}";
        assert_eq!(render(source, &[Message::user("a")]).unwrap(), "[a]");
    }

    #[test]
    fn there_is_no_date_of_today() {
        let source = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}fixed{% endif %}";
        assert_eq!(render(source, &[]).unwrap(), "fixed");
    }

    #[test]
    fn an_error_names_its_line() {
        let parse = ChatTemplate::new("a\n{% for %}").unwrap_err().to_string();
        assert!(parse.starts_with("chat template, line 2: "), "{parse}");
        let refusal = render("\n\n{{ raise_exception('roles must alternate') }}", &[]).unwrap_err();
        assert_eq!(refusal.to_string(), "chat template, line 3: roles must alternate");
    }
}
