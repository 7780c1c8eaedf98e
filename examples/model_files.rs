//! Loads a model's files, prints the logits that follow some tokens as JSON, and can write the model as a Hugging Face
//! folder: `model_files MODEL [--ids 1,2,3] [--save FOLDER]`. `scripts/check_transformers.py` compares with it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use candle_core::Device;
use forebay::ops::Sequence;
use forebay::policy::pretrained::{LoadOptions, Pretrained, load, save};
use forebay::policy::{DecoderInput, PackedAttention};

fn logits(model: &Pretrained, tokens: &[u32]) -> candle_core::Result<Vec<Vec<f32>>> {
    let positions: Vec<u32> = (0..tokens.len() as u32).collect();
    let sequences = [Sequence::alone(0..tokens.len())];
    let scale = model.decoder.config().attention_scale();
    let mut attend = PackedAttention { sequences: &sequences, scale };
    let input = DecoderInput { tokens, positions: &positions, experts: None };
    let states = model.decoder.hidden(&model.parameters, input, &mut attend)?.states;
    model.decoder.logits(&model.parameters, &states)?.to_vec2()
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("model_files: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: model_files MODEL [--ids 1,2,3] [--save FOLDER]";
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or(usage)?);
    let started = Instant::now();
    let model = load(&path, LoadOptions::default(), &Device::Cpu)?;
    eprintln!("{} parameters in {:.1} s", model.parameters.element_count(), started.elapsed().as_secs_f64());
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or(usage)?;
        match option.as_str() {
            "--ids" => {
                let ids: Vec<u32> = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
                println!("{}", serde_json::to_string(&logits(&model, &ids)?)?);
            }
            "--save" => save(Path::new(&value), &model.decoder, &model.parameters, &model.tokenizer)?,
            _ => return Err(usage.into()),
        }
    }
    Ok(())
}
