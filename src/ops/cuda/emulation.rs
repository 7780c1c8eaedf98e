//! The kernels on the CPU: the same sources, compiled as C++ (see `kernels/emulation/emulation.hpp`).
//!
//! Kernels work on copies between guard bytes: writing outside a result, or into an input, is an error, and what is
//! read outside is NaN.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::Mutex;

use candle_core::{CpuStorage, Error, Result, Storage};

use super::super::storage::refuse;
use super::launch::{Argument, Grid, THREADS};
use super::view::{Source, View};

unsafe extern "C" {
    fn forebay_emulate(
        name: *const c_char,
        grid: *const c_uint,
        threads: c_uint,
        shared_bytes: c_uint,
        arguments: *mut *mut c_void,
        backwards: c_int,
    ) -> *const c_char;
}

/// The emulation has one state for the whole process.
static RUNNING: Mutex<()> = Mutex::new(());

thread_local! {
    static BACKWARDS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` with the threads of a block in the order opposite to their index. The bits of its results must not
/// depend on it.
pub(crate) fn run_threads_backwards<R>(work: impl FnOnce() -> R) -> R {
    BACKWARDS.set(true);
    let result = work();
    BACKWARDS.set(false);
    result
}

/// Words of 8 bytes before and behind a copy. All bits are set, which is a NaN in every type of floats.
const GUARD: usize = 16;

/// The bytes of an argument between guards.
struct Copied {
    words: Vec<u64>,
    bytes: usize,
}

impl Copied {
    fn new(bytes: &[u8]) -> Self {
        let mut words = vec![u64::MAX; 2 * GUARD + bytes.len().div_ceil(8)];
        let copied = Self::bytes_of(&mut words);
        copied[8 * GUARD..][..bytes.len()].copy_from_slice(bytes);
        Self { words, bytes: bytes.len() }
    }

    fn bytes_of(words: &mut [u64]) -> &mut [u8] {
        // SAFETY: any byte is a u8, and the length is that of the words.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
    }

    fn pointer(&mut self) -> *mut c_void {
        self.words[GUARD..].as_mut_ptr().cast()
    }

    /// The bytes as they are now; an error when a guard has changed.
    fn checked(&mut self, kernel: &str) -> Result<&[u8]> {
        let bytes = Self::bytes_of(&mut self.words);
        let (head, tail) = bytes.split_at(8 * GUARD);
        let (inside, tail) = tail.split_at(self.bytes);
        if head.iter().chain(tail).all(|&byte| byte == u8::MAX) {
            Ok(inside)
        } else {
            refuse(kernel, "the kernel wrote outside one of its arguments")
        }
    }
}

/// The bytes of a storage.
fn bytes_of(storage: &mut CpuStorage) -> Result<&mut [u8]> {
    fn of<T>(values: &mut [T]) -> &mut [u8] {
        // SAFETY: plain numbers; any bytes are values of theirs.
        unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
    }
    match storage {
        CpuStorage::F32(values) => Ok(of(values)),
        CpuStorage::BF16(values) => Ok(of(values)),
        CpuStorage::F64(values) => Ok(of(values)),
        CpuStorage::U32(values) => Ok(of(values)),
        CpuStorage::U8(values) => Ok(of(values)),
        _ => refuse("a kernel", "no kernel takes values of this type"),
    }
}

fn copy_of(view: &View) -> Result<Copied> {
    let Source::Cpu(storage) = view.source else {
        return refuse("a kernel", "an input is not on the CPU");
    };
    let (start, end) = view.range()?;
    let size = view.dtype().size_in_bytes();
    Ok(Copied::new(&bytes_of(&mut storage.clone())?[start * size..end * size]))
}

/// A scalar in the first bytes of a word, where a pointer to it finds it.
fn scalar(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

pub(super) fn launch(kernel: &str, grid: Grid, arguments: &mut [Argument]) -> Result<()> {
    let mut copies: Vec<Option<Copied>> = Vec::with_capacity(arguments.len());
    let mut words: Vec<u64> = Vec::with_capacity(arguments.len());
    for argument in &mut *arguments {
        let (copy, word) = match argument {
            Argument::Read(view) => (Some(copy_of(view)?), 0),
            Argument::Write(array) => {
                let Storage::Cpu(storage) = &mut array.storage else {
                    return refuse(kernel, "a result is not on the CPU");
                };
                (Some(Copied::new(bytes_of(storage)?)), 0)
            }
            Argument::Update(_) => return refuse(kernel, "only results are written in emulation"),
            Argument::Nothing => (None, 0),
            Argument::Int(value) => (None, scalar(&value.to_ne_bytes())),
            Argument::Word(value) => (None, scalar(&value.to_ne_bytes())),
            Argument::Long(value) => (None, scalar(&value.to_ne_bytes())),
            Argument::Float(value) => (None, scalar(&value.to_ne_bytes())),
        };
        copies.push(copy);
        words.push(word);
    }
    for (word, copy) in words.iter_mut().zip(&mut copies) {
        if let Some(copy) = copy {
            *word = copy.pointer() as u64;
        }
    }
    let mut pointers: Vec<*mut c_void> =
        words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect();
    let name = CString::new(kernel).map_err(Error::wrap)?;
    let blocks = grid.blocks.map(|blocks| blocks as c_uint);
    {
        let _running = RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: the pointers lead to one scalar or pointer for each of the kernel's parameters and live until the end
        // of the call; nobody else is in the emulation.
        let problem = unsafe {
            forebay_emulate(
                name.as_ptr(),
                blocks.as_ptr(),
                THREADS as c_uint,
                (grid.shared * size_of::<f32>()) as c_uint,
                pointers.as_mut_ptr(),
                BACKWARDS.get().into(),
            )
        };
        if !problem.is_null() {
            // SAFETY: a string that lives until the next call.
            return refuse(kernel, unsafe { CStr::from_ptr(problem) }.to_string_lossy());
        }
    }
    for (argument, copy) in arguments.iter_mut().zip(&mut copies) {
        let Some(copy) = copy else { continue };
        let bytes = copy.checked(kernel)?;
        match argument {
            Argument::Write(array) => {
                if let Storage::Cpu(storage) = &mut array.storage {
                    bytes_of(storage)?.copy_from_slice(bytes);
                }
            }
            Argument::Read(view) if copy_of(view)?.checked(kernel)? != bytes => {
                return refuse(kernel, "the kernel wrote into an input");
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::super::view::{Array, lock};
    use super::*;

    /// What a kernel makes of 256 different values, with the threads in either order.
    fn run(kernel: &str, more: &[i32]) -> Result<[Vec<u32>; 2]> {
        let x: Vec<f32> = (0..256).map(|i| i as f32).collect();
        let x = candle_core::Tensor::new(x, &Device::Cpu)?;
        let once = || -> Result<Vec<u32>> {
            let x = lock(&x);
            let mut y = Array::new(&Device::Cpu, DType::F32, 256)?;
            let mut arguments = vec![Argument::Read(x.view()?), Argument::Write(&mut y)];
            arguments.extend(more.iter().map(|&value| Argument::Int(value)));
            launch(kernel, Grid::threads(256), &mut arguments)?;
            Ok(y.into_tensor().to_vec1::<f32>()?.into_iter().map(f32::to_bits).collect())
        };
        Ok([once()?, run_threads_backwards(once)?])
    }

    fn refusal(kernel: &str, more: &[i32]) -> String {
        run(kernel, more).unwrap_err().to_string()
    }

    #[test]
    fn a_missing_barrier_shows_in_the_order_of_threads() {
        let [forwards, backwards] = run("sound", &[]).unwrap();
        assert_eq!(forwards, backwards);
        let [forwards, backwards] = run("broken_barrier", &[]).unwrap();
        assert_ne!(forwards, backwards);
    }

    #[test]
    fn writing_outside_and_into_an_input_is_refused() {
        assert!(run("broken_bound", &[255]).is_ok());
        assert!(refusal("broken_bound", &[256]).contains("outside"));
        assert!(refusal("broken_input", &[]).contains("into an input"));
    }

    #[test]
    fn exchanges_with_lanes_that_left_and_barriers_in_branches_are_refused() {
        assert!(refusal("broken_exchange", &[]).contains("lanes that have ended"));
        assert!(refusal("broken_branch", &[]).contains("different barriers"));
        assert!(refusal("absent", &[]).contains("no such kernel"));
    }
}
