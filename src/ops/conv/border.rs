//! Borders of zeros around channels-last images.

use std::borrow::Cow;

use super::super::lanes::Element;

/// Images `[N, height, width, channels]` and the border on each side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Border {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    /// Lines above and below.
    pub(super) vertical: usize,
    /// Columns left and right.
    pub(super) horizontal: usize,
}

impl Border {
    fn image_len(&self) -> usize {
        self.height * self.width * self.channels
    }

    fn bordered_len(&self) -> usize {
        (self.height + 2 * self.vertical) * (self.width + 2 * self.horizontal) * self.channels
    }

    /// Where a line begins in its image with the border.
    fn line(&self, y: usize) -> usize {
        ((y + self.vertical) * (self.width + 2 * self.horizontal) + self.horizontal) * self.channels
    }

    /// The images with their border.
    pub(super) fn add<'a, T: Element>(&self, images: &'a [T]) -> Cow<'a, [T]> {
        if self.vertical + self.horizontal == 0 || images.is_empty() {
            return Cow::Borrowed(images);
        }
        let count = images.len() / self.image_len();
        let mut bordered = vec![T::zero(); count * self.bordered_len()];
        let pairs = bordered.chunks_exact_mut(self.bordered_len()).zip(images.chunks_exact(self.image_len()));
        for (bordered, image) in pairs {
            for (y, line) in image.chunks_exact(self.width * self.channels).enumerate() {
                bordered[self.line(y)..][..line.len()].copy_from_slice(line);
            }
        }
        Cow::Owned(bordered)
    }

    /// The images without their border.
    pub(super) fn remove<T: Element>(&self, bordered: Vec<T>) -> Vec<T> {
        if self.vertical + self.horizontal == 0 || bordered.is_empty() {
            return bordered;
        }
        let line = self.width * self.channels;
        let mut images = Vec::with_capacity(bordered.len() / self.bordered_len() * self.image_len());
        for bordered in bordered.chunks_exact(self.bordered_len()) {
            for y in 0..self.height {
                images.extend_from_slice(&bordered[self.line(y)..][..line]);
            }
        }
        images
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_border_is_zeros_around_each_image_and_comes_off_again() {
        let border = Border { height: 2, width: 1, channels: 2, vertical: 1, horizontal: 1 };
        let images: Vec<f32> = (1..=8).map(|v| v as f32).collect();
        let bordered = border.add(&images).into_owned();
        assert_eq!(bordered.len(), 2 * 4 * 3 * 2);
        assert_eq!(bordered[8..10], [1.0, 2.0]);
        assert_eq!(bordered[24 + 14..24 + 16], [7.0, 8.0]);
        assert_eq!(bordered.iter().filter(|&&v| v != 0.0).count(), 8);
        assert_eq!(border.remove(bordered), images);
    }
}
