use super::*;

fn letters() -> Tokenizer {
    Tokenizer::characters("0123456789+= abc\nZZ").unwrap()
}

fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in letters().to_files().unwrap() {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Loads a folder whose `tokenizer.json` and `tokenizer_config.json` were changed.
fn changed(file: &str, pointer: &str, value: serde_json::Value) -> Result<Tokenizer, TokenizerError> {
    let folder = folder_with(&[]);
    let path = folder.path().join(file);
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    json.pointer_mut(parent).unwrap()[key] = value;
    std::fs::write(&path, json.to_string()).unwrap();
    Tokenizer::from_folder(folder.path())
}

#[test]
fn characters_are_one_token_each_and_come_back() {
    let tokenizer = letters();
    assert_eq!(tokenizer.vocabulary_size(), 6 + 18);
    let text = "12+ab = c\n\nZ";
    let ids = tokenizer.encode(text).unwrap();
    assert_eq!(ids.len(), text.len());
    assert_eq!(&ids[..3], [7, 8, 16]);
    assert_eq!(tokenizer.decode(&ids), text);
}

#[test]
fn special_tokens_in_a_text_are_recognised_and_can_be_left_out() {
    let tokenizer = letters();
    let ids = tokenizer.encode("<|user|>1<|end|>").unwrap();
    assert_eq!(ids, [3, 7, 0]);
    assert_eq!(tokenizer.ends(), [0]);
    assert_eq!([tokenizer.decode(&ids), tokenizer.decode_plain(&ids)], ["<|user|>1<|end|>", "1"]);
}

#[test]
fn a_character_outside_the_alphabet_is_named_with_its_place() {
    let error = letters().encode("12é3").unwrap_err().to_string();
    assert_eq!(error, "the character 'é' at byte 2 is not in the tokenizer's vocabulary");
    assert!(Tokenizer::characters("").unwrap_err().to_string().contains("no characters"));
}

#[test]
fn a_chat_is_rendered_with_the_answer_to_come() {
    let tokenizer = letters();
    let messages = [Message::new("system", "a"), Message::user("1+1=")];
    assert_eq!(
        tokenizer.render(&messages, true).unwrap(),
        "<|system|>a<|end|><|user|>1+1=<|end|><|assistant|>"
    );
    assert_eq!(tokenizer.encode_chat(&messages).unwrap().len(), 3 + 6 + 1);
    let error = tokenizer.render(&[Message::new("judge", "a")], true).unwrap_err().to_string();
    assert_eq!(error, "chat template, line 3: there is no token for the role judge");
}

#[test]
fn a_chat_goes_on_where_the_answer_ended() {
    let tokenizer = letters();
    let messages = [Message::user("1+1=")];
    let turn = [Message::user("b")];
    let following = |answer: &str| {
        let ids = tokenizer.continue_chat(&messages, &tokenizer.encode(answer).unwrap(), &turn).unwrap();
        tokenizer.decode(&ids)
    };
    assert_eq!(following("3<|end|>"), "<|user|>b<|end|><|assistant|>");
    // Cut off by a budget, it is closed here.
    assert_eq!(following("3"), "<|end|><|user|>b<|end|><|assistant|>");
    // All of it together is what the template makes of the whole chat.
    let mut all = messages.to_vec();
    all.extend([Message::assistant("3"), turn[0].clone()]);
    let before = tokenizer.render(&messages, true).unwrap();
    assert_eq!(format!("{before}3<|end|>{}", following("3<|end|>")), tokenizer.render(&all, true).unwrap());
}

#[test]
fn a_template_that_trims_answers_is_continued_and_one_that_rewrites_them_is_refused() {
    let with = |template: &str| {
        let tokenizer = changed("tokenizer_config.json", "/chat_template", template.into()).unwrap();
        let answer = tokenizer.encode(" 3 <|end|>").unwrap();
        let ids = tokenizer.continue_chat(&[Message::user("1")], &answer, &[Message::user("2")]);
        ids.map(|ids| tokenizer.decode(&ids)).map_err(|error| error.to_string())
    };
    let open = "{% if add_generation_prompt %}<|assistant|>{% endif %}";
    let trimming = format!(
        "{{% for m in messages %}}<|{{{{ m.role }}}}|>{{{{ m.content.strip() }}}}<|end|>{{% endfor %}}{open}"
    );
    assert_eq!(with(&trimming).unwrap(), "<|user|>2<|end|><|assistant|>");
    let forgetting = format!(
        "{{% for m in messages[-1:] %}}<|{{{{ m.role }}}}|>{{{{ m.content }}}}<|end|>{{% endfor %}}{open}"
    );
    assert!(with(&forgetting).unwrap_err().contains("changes the text of earlier turns"));
    let changing = format!(
        "{{% for m in messages %}}<|{{{{ m.role }}}}|>{{{{ m.content }}}}a<|end|>{{% if loop.last %}}b{{% endif %}}{{% endfor %}}{open}"
    );
    assert!(with(&changing).unwrap_err().contains("changes the text of earlier turns"));
}

#[test]
fn a_saved_tokenizer_is_read_back() {
    let folder = folder_with(&[]);
    let (saved, read) = (letters(), Tokenizer::from_folder(folder.path()).unwrap());
    let chat = [Message::user("1+2\nZ")];
    assert_eq!(read.encode_chat(&chat).unwrap(), saved.encode_chat(&chat).unwrap());
    assert_eq!((read.ends(), read.padding(), read.begin()), (saved.ends(), saved.padding(), None));
    assert_eq!(read.vocabulary_size(), saved.vocabulary_size());
}

#[test]
fn ends_come_from_the_generation_settings_and_the_tokenizer() {
    let ends =
        |files: &[(&str, &str)]| Tokenizer::from_folder(folder_with(files).path()).unwrap().ends().to_vec();
    assert_eq!(ends(&[("generation_config.json", r#"{"eos_token_id": [4, 5]}"#)]), [4, 5, 0]);
    assert_eq!(ends(&[("config.json", r#"{"eos_token_id": 4}"#)]), [4, 0]);
    let both =
        [("config.json", r#"{"eos_token_id": 4}"#), ("generation_config.json", r#"{"eos_token_id": 0}"#)];
    assert_eq!(ends(&both), [0]);
}

#[test]
fn a_template_in_a_file_of_its_own_comes_first() {
    let folder = folder_with(&[("chat_template.jinja", "{{ messages[0].content }}")]);
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!(tokenizer.render(&[Message::user("a")], true).unwrap(), "a");
    let named =
        serde_json::json!([{"name": "tool_use", "template": "x"}, {"name": "default", "template": "y"}]);
    let tokenizer = changed("tokenizer_config.json", "/chat_template", named).unwrap();
    assert_eq!(tokenizer.render(&[], true).unwrap(), "y");
}

#[test]
fn a_begin_token_is_added_once() {
    let post = serde_json::json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|system|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|system|>": {"id": "<|system|>", "ids": [2], "tokens": ["<|system|>"]}},
    });
    let folder = folder_with(&[(
        "tokenizer_config.json",
        r#"{"bos_token": {"content": "<|system|>"}, "eos_token": "<|end|>"}"#,
    )]);
    let without = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!(without.encode_prompt("1").unwrap(), [7]);
    let path = folder.path().join("tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    json["post_processor"] = post;
    std::fs::write(&path, json.to_string()).unwrap();
    let with = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!(with.encode_prompt("1").unwrap(), [2, 7]);
    assert_eq!(with.encode_prompt("<|system|>1").unwrap(), [2, 7]);
    assert_eq!(with.encode("1").unwrap(), [7]);
}

#[test]
fn saved_truncation_cuts_no_prompt() {
    let truncation =
        serde_json::json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    let tokenizer = changed("tokenizer.json", "/truncation", truncation).unwrap();
    assert_eq!(tokenizer.encode("1234").unwrap().len(), 4);
}

#[test]
fn what_is_wrong_with_a_folder_is_said() {
    let error = |result: Result<Tokenizer, TokenizerError>| result.unwrap_err().to_string();
    let missing = error(Tokenizer::from_folder(std::path::Path::new("/nonexistent")));
    assert!(missing.starts_with("cannot read /nonexistent/tokenizer.json: "), "{missing}");
    let broken = error(Tokenizer::from_folder(folder_with(&[("tokenizer.json", "{\"a\":")]).path()));
    assert!(broken.contains("tokenizer.json: "), "{broken}");
    let end = error(changed("tokenizer_config.json", "/eos_token", serde_json::Value::Null));
    assert!(end.contains("has no end token: set `eos_token` in tokenizer_config.json"), "{end}");
    let unknown = error(changed("tokenizer_config.json", "/eos_token", "</s>".into()));
    assert!(unknown.contains("names `</s>` as its end token"), "{unknown}");
    let decoder = error(changed(
        "tokenizer.json",
        "/decoder",
        serde_json::json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
    ));
    assert!(decoder.contains("decoder `WordPiece`, which is not supported"), "{decoder}");
    let template = error(changed("tokenizer_config.json", "/chat_template", "a\n{% if".into()));
    assert!(template.starts_with("chat template, line 2: "), "{template}");
    let ids = error(Tokenizer::from_folder(
        folder_with(&[("generation_config.json", r#"{"eos_token_id": "end"}"#)]).path(),
    ));
    assert!(ids.contains("generation_config.json: `eos_token_id` is \"end\""), "{ids}");
    let absent = changed("tokenizer_config.json", "/chat_template", serde_json::Value::Null).unwrap();
    assert!(absent.encode_chat(&[]).unwrap_err().to_string().contains("has no chat template"));
}
