//! A connection between a process and a child: one request at a time.
//!
//! The child's standard input is a socket over which it gets the ends of further sockets, one for each batch that may
//! run at once. So no batch waits for another, and no thread is needed in between.

use std::{
    io::{self, BufReader, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use bytes::Bytes;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use sextant_types::NamedTensor;

use crate::{
    frame,
    message::{Head, Reply, Request},
};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// See the module.
pub(crate) struct Link {
    from: BufReader<UnixStream>,
    to: UnixStream,
}

/// An answer with its outputs.
pub(crate) type Answer = (Reply, Vec<NamedTensor>);

impl Link {
    pub(crate) fn over(stream: UnixStream) -> io::Result<Self> {
        Ok(Self {
            to: stream.try_clone()?,
            from: BufReader::with_capacity(READ_BYTES, stream),
        })
    }

    /// Opens a link to the child with this control socket.
    pub(crate) fn open(control: &UnixStream) -> io::Result<Self> {
        let (own, other) = UnixStream::pair()?;
        send(control, &other)?;
        Self::over(own)
    }

    /// Asks and waits for the answer. If a child announces more than `most_bytes` of outputs, nothing is read: the
    /// outputs would fill the memory of this process, which the child's limit does not cover.
    pub(crate) fn call(
        &mut self,
        request: &Request,
        blobs: &[Bytes],
        most_bytes: u64,
    ) -> io::Result<Answer> {
        frame::write(&mut self.to, request, blobs)?;
        let mut reply: Reply =
            frame::read_head(&mut self.from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let heads = match &mut reply {
            Reply::Ran { outputs, .. } => std::mem::take(outputs),
            _ => Vec::new(),
        };
        let announced = heads.iter().map(Head::announced_bytes);
        if announced.fold(0, u64::saturating_add) > most_bytes {
            return Err(io::Error::other(
                "an answer has more bytes than its process may take",
            ));
        }
        let outputs = heads.into_iter().map(|head| head.unpack(&mut self.from));
        let outputs = outputs.collect::<io::Result<_>>()?;
        Ok((reply, outputs))
    }

    /// The next request; the reader has the bytes that follow it.
    pub(crate) fn next(&mut self) -> io::Result<Option<(Request, &mut BufReader<UnixStream>)>> {
        let request = frame::read_head(&mut self.from)?;
        Ok(request.map(|request| (request, &mut self.from)))
    }

    pub(crate) fn answer(&mut self, reply: &Reply, blobs: &[Bytes]) -> io::Result<()> {
        frame::write(&mut self.to, reply, blobs)
    }
}

/// Sends the end of a socket.
fn send(control: &UnixStream, end: &UnixStream) -> io::Result<()> {
    let ends = [end.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&ends)) {
        return Err(io::Error::other("there is no room for a socket"));
    }
    sendmsg(
        control,
        &[IoSlice::new(&[0])],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives the end of a socket; `None` if the sender is gone.
pub(crate) fn receive(control: &UnixStream) -> io::Result<Option<UnixStream>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(
        control,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        flags,
    )?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut sent = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut ends) => ends.next(),
        _ => None,
    });
    let end: Option<OwnedFd> = sent.next();
    let end = end.ok_or_else(|| io::Error::other("no socket comes along"))?;
    Ok(Some(UnixStream::from(end)))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use sextant_types::Tensor;

    use super::*;
    use crate::message::pack;

    /// The result of an answer with an output of 400 bytes.
    fn answered(most_bytes: u64) -> io::Result<Answer> {
        let (own, other) = UnixStream::pair().expect("two ends");
        let child = thread::spawn(move || {
            let mut link = Link::over(other).expect("a link");
            link.next().expect("a request");
            let output = Tensor::from_elements(vec![1, 100], &[1.0f32; 100]).expect("a tensor");
            let (head, elements) = pack("y", &output);
            let outputs = vec![head];
            link.answer(&Reply::Ran { outputs, nanos: 1 }, &elements)
        });
        let mut link = Link::over(own).expect("a link");
        let answer = link.call(&Request::Unload { model: 1 }, &[], most_bytes);
        // The other end may have been stopped in the middle of its answer.
        drop(child.join().expect("it does not panic"));
        answer
    }

    #[test]
    fn an_answer_that_announces_more_than_its_process_may_take_is_not_read() {
        let refused = answered(399).err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::Other));
        let (_, outputs) = answered(400).expect("it fits");
        assert_eq!(outputs[0].tensor.byte_len(), 400);
    }
}
