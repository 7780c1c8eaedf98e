//! The teachers of a run: frozen language models from files, and which of them a run began with.
//!
//! Each file is read once, however many sources its model teaches. Teachers are no part of checkpoints, since their files
//! are there already; `model/teachers.json` of the run directory keeps a fingerprint of each, so that a run is never
//! continued with other ones unnoticed. A teacher scores the ids that the policy samples, so both have the same tokens under
//! the same ids.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::build::{adopt_trained, load_token_parameters};
use super::critic::same_tokens;
use super::frozen::checksum;
use super::language_model::{LanguageModel, expand, read_json};
use crate::actors::checkpoint::files;
use crate::actors::run_dir::RunDir;
use crate::actors::train_error::TrainError;
use crate::codec::{CheckpointReader, tensors_from_bytes, write_atomically};
use crate::config::TokenConfig;
use crate::learner::token::{Teacher, TeacherConfig};
use crate::policy::pretrained::{self, LoadOptions, Pretrained};
use crate::policy::{Parameters, Tokenizer};

const FILE: &str = "teachers.json";

/// What a run remembers of a teacher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Known {
    #[serde(flatten)]
    teacher: TeacherConfig,
    /// CRC-32C of its shape and of all its parameters.
    fingerprint: String,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct OpenTeachers {
    /// In the order of `learner.teachers`.
    pub(super) teachers: Vec<Teacher>,
    known: Vec<Known>,
}

/// A model that was read.
struct Model {
    teacher: Teacher,
    tokenizer: Arc<Tokenizer>,
    fingerprint: String,
}

impl OpenTeachers {
    /// Reads the models that `learner.teachers` names; none where it names none.
    ///
    /// # Errors
    /// When a file cannot be used, or its model has other tokens or a shorter context than the policy.
    pub(super) fn open(config: &TokenConfig, model: &LanguageModel) -> Result<Self, TrainError> {
        let mut models: BTreeMap<PathBuf, Model> = BTreeMap::new();
        let mut opened = Self::default();
        for teacher in &config.learner.teachers {
            let refuse = |why: &dyn std::fmt::Display| {
                let path = teacher.path.display();
                TrainError::Model(format!(
                    "learner.teachers: {path}, teacher of {}: {why}",
                    teacher.subject()
                ))
            };
            let path = expand("learner.teachers.path", &teacher.path).map_err(TrainError::Model)?;
            let path = std::fs::canonicalize(&path).map_err(|error| refuse(&error))?;
            let read = match models.entry(path) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    let read = Model::read(place.key(), model).map_err(|why| refuse(&why))?;
                    place.insert(read)
                }
            };
            read.check(model).map_err(|why| refuse(&why))?;
            opened.teachers.push(read.teacher.clone());
            opened.known.push(Known { teacher: teacher.clone(), fingerprint: read.fingerprint.clone() });
        }
        Ok(opened)
    }

    /// Notes in a run directory what the run begins with; also where that is nothing, since the directory may hold an
    /// earlier run's.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write(&self, run_dir: &Path) -> Result<(), TrainError> {
        let path = run_dir.join(LanguageModel::FOLDER).join(FILE);
        let refuse = |error: &dyn std::fmt::Display| {
            TrainError::Model(format!("cannot write {}: {error}", path.display()))
        };
        let text = serde_json::to_string_pretty(&self.known).map_err(|error| refuse(&error))?;
        write_atomically(&path, text.as_bytes()).map_err(|error| refuse(&error))
    }

    /// Refuses to continue a run with other teachers than it began with. Where their files lie does not matter.
    ///
    /// # Errors
    /// When one is another, missing or new, or the note cannot be read.
    pub(super) fn check_resumed(&self, run_dir: &Path) -> Result<(), TrainError> {
        let before: Option<Vec<Known>> = read_json(&run_dir.join(LanguageModel::FOLDER).join(FILE))?;
        let before = before.unwrap_or_default();
        let subjects = |known: &[Known]| {
            let mut subjects: Vec<String> = known.iter().map(|known| known.teacher.subject()).collect();
            subjects.sort();
            if subjects.is_empty() { "nothing".into() } else { subjects.join(", ") }
        };
        if subjects(&before) != subjects(&self.known) {
            return Err(TrainError::Checkpoint(format!(
                "the checkpoint was made with learner.teachers of {}, not of {}",
                subjects(&before),
                subjects(&self.known)
            )));
        }
        let changed = self.known.iter().find(|now| {
            let was = before.iter().find(|was| was.teacher.subject() == now.teacher.subject());
            was.is_some_and(|was| was.fingerprint != now.fingerprint)
        });
        changed.map_or(Ok(()), |now| {
            Err(TrainError::Checkpoint(format!(
                "learner.teachers: {}, teacher of {}, is not the model that the run began with; put that back, or name a \
                 folder of `checkpoints` where a run goes on",
                now.teacher.path.display(),
                now.teacher.subject()
            )))
        })
    }
}

impl Model {
    /// Reads a model from a run directory, one of its checkpoints, or the files of a pretrained one.
    fn read(path: &Path, policy: &LanguageModel) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let device = policy.decoder.device();
        if is_run(path) {
            let model = LanguageModel::of_run(path, device).map_err(|error| text(&error))?;
            let (_, parameters) = load_token_parameters(path, &model).map_err(|error| text(&error))?;
            return Self::of_run(&model, parameters);
        }
        if let Some(run_dir) = path.ancestors().nth(2).filter(|run_dir| is_run(run_dir)) {
            let model = LanguageModel::of_run(run_dir, device).map_err(|error| text(&error))?;
            let loaded = CheckpointReader::read(path).map_err(|torn| text(&torn))?;
            let bytes = loaded.file(files::PARAMETERS).map_err(|error| text(&error))?;
            let trained = tensors_from_bytes(bytes, &Device::Cpu).map_err(|error| text(&error))?.tensors;
            let parameters = adopt_trained(run_dir, &model, trained).map_err(|error| text(&error))?;
            return Self::of_run(&model, parameters);
        }
        let context = Some(policy.decoder.config().context);
        let options = LoadOptions { context, value_head: false, seed: 0 };
        let Pretrained { decoder, parameters, tokenizer } =
            pretrained::load(path, options, device).map_err(|error| text(&error))?;
        Self::new(Teacher { decoder: Arc::new(decoder), parameters }, Arc::new(tokenizer))
    }

    fn of_run(model: &LanguageModel, parameters: Parameters) -> Result<Self, String> {
        let teacher = Teacher { decoder: Arc::clone(&model.decoder), parameters };
        Self::new(teacher, Arc::clone(&model.tokenizer))
    }

    fn new(teacher: Teacher, tokenizer: Arc<Tokenizer>) -> Result<Self, String> {
        let named: Vec<(String, Tensor)> =
            teacher.parameters.iter().map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect();
        let values = checksum(&named).map_err(|error| error.to_string())?;
        let shape = serde_json::to_vec(teacher.decoder.config()).map_err(|error| error.to_string())?;
        let fingerprint = format!("{:08x}{values}", crc32c::crc32c(&shape));
        Ok(Self { teacher, tokenizer, fingerprint })
    }

    /// Whether it can score what the policy writes.
    fn check(&self, policy: &LanguageModel) -> Result<(), String> {
        let (own, needed) = (self.teacher.decoder.config(), policy.decoder.config());
        if own.context < needed.context {
            return Err(format!(
                "it is made for {} positions, the policy uses {}; set model.context",
                own.context, needed.context
            ));
        }
        // Models of one family may have more rows than tokens, and not the same number of them.
        if own.vocabulary < needed.vocabulary || !same_tokens(&self.tokenizer, &policy.tokenizer) {
            return Err(
                "it reads other tokens than the policy writes; teachers and student share a tokenizer".into(),
            );
        }
        Ok(())
    }
}

fn is_run(path: &Path) -> bool {
    path.join(RunDir::CHECKPOINTS).is_dir() && path.join(LanguageModel::FOLDER).is_dir()
}
