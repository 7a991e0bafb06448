//! Sessions of an engine inside this process, one with a lost device among them.

use super::*;
use crate::Cancel;
use crate::serve::embedded::{CompletionRequest, Engine, EngineSession};
use crate::serve::http::Method;

#[test]
fn complete_answers_are_the_conversation_of_a_session_and_of_its_clones() {
    let engine = open(&Arc::new(AtomicUsize::new(usize::MAX)));
    let session = EngineSession::new(engine);
    let roles = |session: &EngineSession| -> Vec<String> {
        session.messages().iter().map(|message| message.role.clone()).collect()
    };
    let (answer, ended) = session.ask("Who are you?", &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((ended, session.messages()[1].texts()[1]), (Ok(()), answer.as_str()));
    let (cut, ended) = session.ask("Hello", &mut |_| ControlFlow::Break(())).unwrap();
    assert!(matches!(ended, Err(Error::Interrupted { .. })) && !cut.is_empty());
    assert_eq!(roles(&session), ["user", "assistant"]);
    let clone = session.clone();
    // The callback may use the session.
    let mut lengths = Vec::new();
    let mut hear = |_: &str| {
        lengths.push(clone.messages().len());
        ControlFlow::Continue(())
    };
    assert_eq!(clone.ask("Why?", &mut hear).unwrap().1, Ok(()));
    assert!(!lengths.is_empty() && lengths.iter().all(|length| *length == 2));
    assert_eq!((roles(&clone).len(), roles(&session).len()), (4, 2));
}

#[test]
fn a_closed_session_interrupts_calls_that_were_about_to_begin() {
    let session = EngineSession::new(open(&Arc::new(AtomicUsize::new(usize::MAX))));
    let asked = |session: &EngineSession| session.ask("Who are you?", &mut |_| ControlFlow::Continue(())).unwrap().1;
    session.close();
    assert!(matches!(asked(&session), Err(Error::Interrupted { .. })));
    assert!(matches!(session.sync(vec![2, 3, 4]), Err(Error::Interrupted { .. })));
    assert_eq!(asked(&session.clone()), Ok(()));
}

/// An engine whose device does not answer after `left` passes.
fn open(left: &Arc<AtomicUsize>) -> Arc<Engine> {
    let (load, left) = (loader(ModelFiles::BuiltIn, None, options(2), false), left.clone());
    let faulty = move |progress: &Progress| -> Result<LoadedExecutor> {
        let inner = load(progress)?.executor;
        let executor: Box<dyn Measure> = Box::new(Faulty { left: left.clone(), ..Faulty::of(inner) });
        Ok(executor.into())
    };
    let opened =
        Engine::open_by(Box::new(faulty), ModelFiles::BuiltIn.into(), &mut |_, _| ControlFlow::Continue(())).unwrap();
    Arc::new(opened)
}

#[test]
fn a_lost_device_is_that_for_every_call_of_this_process() {
    let lost = Error::device("the GPU does not answer", "look at the kernel's log");
    let mut long = json!({
        "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "ignore_eos": true, "max_tokens": 150,
    });
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let engine = open(&left);
    let session = EngineSession::new(engine.clone());
    let request = CompletionRequest::parse(&long.to_string()).unwrap();
    let mut heard = String::new();
    let mut hear = |piece: &str| {
        if heard.is_empty() {
            left.store(3, Ordering::SeqCst);
        }
        heard.push_str(piece);
        ControlFlow::Continue(())
    };
    let (reply, ended) = session.generate(&request, &mut hear).unwrap();
    assert_eq!(ended, Err(lost.clone()));
    assert_eq!((&reply["text"], &reply["finish_reason"]), (&json!(heard), &json!(null)));
    assert!(!heard.is_empty());
    let later = session.generate(&request, &mut |_| ControlFlow::Continue(()));
    assert_eq!(later.and_then(|(_, ended)| ended), Err(lost.clone()));
    assert_eq!(session.sync(vec![2, 3, 4]), Err(lost.clone()));
    // A path's answer is an error as its API has it.
    let mut body = Vec::new();
    let status = session.request(Method::Post, "/v1/chat/completions", long.to_string().as_bytes(), &mut |_, piece| {
        body.extend_from_slice(piece);
        ControlFlow::Continue(())
    });
    let answer: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &answer["error"]["code"]), (Ok(500), &json!("engine_failed")));
    drop(session);
    assert_eq!(Arc::into_inner(engine).unwrap().close(), Err(lost.clone()));

    // A stream has begun with its status, so the error ends it.
    left.store(usize::MAX, Ordering::SeqCst);
    let engine = open(&left);
    long["stream"] = true.into();
    let mut body = String::new();
    let mut hear = |status: u16, piece: &[u8]| {
        assert_eq!(status, 200);
        if body.is_empty() {
            left.store(3, Ordering::SeqCst);
        }
        body.push_str(std::str::from_utf8(piece).unwrap());
        ControlFlow::Continue(())
    };
    let bytes = long.to_string();
    let ended = engine.request(Method::Post, "/v1/chat/completions", bytes.as_bytes(), &Cancel::default(), &mut hear);
    assert_eq!(ended, Err(lost));
    let last = body.trim_end().rsplit("\n\n").next().unwrap();
    assert!(last.starts_with("data: {\"error\":{\"message\":\"the GPU does not answer"), "{last}");
}
