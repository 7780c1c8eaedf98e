//! `forebay chat`: a conversation on the terminal, or line by line from a pipe.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::policy_of_run::{PolicyOfRun, SamplingArgs};
use crate::trajectory::Message;

/// Arguments of `forebay chat`.
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// Run directory
    run: PathBuf,
    /// A system message to begin with
    #[arg(long)]
    system: Option<String>,
    #[command(flatten)]
    sampling: SamplingArgs,
}

pub(super) fn run(args: &ChatArgs) -> anyhow::Result<ExitCode> {
    let settings = args.sampling.settings()?;
    let policy = PolicyOfRun::open(&args.run)?;
    let tokenizer = &policy.model.tokenizer;
    let chats = policy.chats();
    let terminal = std::io::stdin().is_terminal();
    if terminal {
        let how = if chats { "" } else { " (not a chat model: each line is continued as it is)" };
        eprintln!("{} after {} updates{how}; end with Ctrl-D", args.run.display(), policy.version());
    }
    let system = args.system.iter().map(|text| Message::new("system", text));
    let mut messages: Vec<Message> = system.collect();
    // The conversation in tokens: what was generated is never encoded again.
    let mut ids: Vec<u32> = Vec::new();
    let mut last: Option<(Vec<Message>, Vec<u32>)> = None;
    let mut out = std::io::stdout();
    loop {
        if terminal {
            eprint!("> ");
            std::io::stderr().flush()?;
        }
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        let said = line.trim_end_matches(['\n', '\r']);
        if said.is_empty() {
            continue;
        }
        if chats {
            let turn = [Message::user(said)];
            match &last {
                None => {
                    messages.extend(turn);
                    ids = policy.chat(&messages)?;
                }
                Some((before, answer)) => {
                    ids.extend(tokenizer.continue_chat(before, answer, &turn)?);
                    messages.extend(turn);
                }
            }
        } else {
            ids = tokenizer.encode_prompt(said)?;
        }
        let answer = policy.answer(ids.clone(), &settings, |text| {
            drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
        })?;
        println!();
        ids.extend(&answer);
        let before = messages.clone();
        messages.push(Message::assistant(tokenizer.decode_plain(&answer)));
        last = Some((before, answer));
    }
}
