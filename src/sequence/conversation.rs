//! A conversation whose oldest messages are dropped to fit the context.

use crate::error::text;
use crate::sequence::prompt::SequenceLimits;
use crate::text::{ChatInput, ChatTemplate, Message, Tokenizer};
use crate::{Error, Result};

/// The messages of a conversation: an optional system message, then exchanges of a user's message and its answer. With
/// a call syntax an answer is several messages: calls, their results, and the assistant's text.
#[derive(Debug, Clone)]
pub struct Conversation {
    messages: Vec<Message>,
    /// The functions that the model may call, as in [`ChatInput`].
    tools: Vec<serde_json::Value>,
    /// The number of system messages at the start: 0 or 1.
    system: usize,
    /// Whether the model thinks before it answers, as in [`ChatInput`].
    pub thinking: Option<bool>,
}

/// A conversation's prompt, shortened to fit into the context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// The ids of the system message and of the exchanges that fit.
    pub ids: Vec<u32>,
    /// The number of exchanges in the prompt before the last message.
    pub exchanges: usize,
    /// The number of exchanges that were dropped, oldest first.
    pub dropped: usize,
}

impl Conversation {
    /// A conversation without exchanges. An empty system message counts as none.
    pub fn new(system: Option<&str>) -> Conversation {
        let mut conversation = Conversation { system: 0, messages: Vec::new(), tools: Vec::new(), thinking: None };
        conversation.set_system(system);
        conversation
    }

    /// A conversation of these messages: an optional system message, then the user's and the assistant's in turn.
    ///
    /// # Errors
    /// Input: the messages have other roles or another order.
    pub fn from_messages(messages: Vec<Message>) -> Result<Conversation> {
        let system = usize::from(messages.first().is_some_and(|first| first.role == "system"));
        for (i, message) in messages.iter().enumerate().skip(system) {
            let turn = ["user", "assistant"][(i - system) % 2];
            if message.role != turn {
                return Err(Error::input(
                    format!("message {} has the role {:?} where {turn} comes", i + 1, message.role),
                    "give a system message, if any, and then the user's and the assistant's in turn",
                ));
            }
        }
        Ok(Conversation { messages, tools: Vec::new(), system, thinking: None })
    }

    /// A conversation in the message order of a template with a call syntax, with the functions.
    pub fn with_tools(messages: Vec<Message>, tools: Vec<serde_json::Value>) -> Conversation {
        let system = usize::from(messages.first().is_some_and(|first| first.role == "system"));
        Conversation { messages, tools, system, thinking: None }
    }

    /// True if the last message is the user's or a tool's result, so that an answer is due.
    pub fn is_asked(&self) -> bool {
        self.messages.last().is_some_and(|last| last.role == "user" || last.role == "tool")
    }

    /// The messages that were not dropped, oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Drops all exchanges. The system message stays.
    pub fn clear(&mut self) {
        self.messages.truncate(self.system);
    }

    /// Replaces the system message. Empty text or `None` removes it.
    pub fn set_system(&mut self, text: Option<&str>) {
        let text = text.filter(|text| !text.is_empty());
        let message = text.map(|text| Message::new("system", text));
        self.messages.splice(..self.system, message);
        self.system = usize::from(text.is_some());
    }

    /// Adds a message of the user.
    pub fn ask(&mut self, text: &str) {
        self.messages.push(Message::new("user", text));
    }

    /// Adds the model's answer to the user's last message.
    pub fn answer(&mut self, text: &str) {
        self.messages.push(Message::new("assistant", text));
    }

    /// Removes the last message, which must be unanswered.
    pub fn retract(&mut self) {
        self.messages.pop();
    }

    /// Removes and returns the last answer. `None`: the last message is not an answer.
    pub fn take_answer(&mut self) -> Option<Message> {
        self.messages.pop_if(|last| last.role == "assistant")
    }

    /// Adds an answer again that [`Conversation::take_answer`] has removed.
    pub fn put_back(&mut self, answer: Message) {
        self.messages.push(answer);
    }

    /// Removes the user's last message with its answer, and returns the message. `None`: there is none.
    pub fn undo(&mut self) -> Option<Message> {
        self.take_answer();
        self.messages.pop_if(|last| last.role == "user")
    }

    /// The number of the user's messages.
    pub fn turns(&self) -> usize {
        (self.messages.len() - self.system).div_ceil(2)
    }

    /// Returns the prompt for an answer to the last message. It takes at most seven eighths of the context, to leave
    /// the rest for the answer. The oldest exchanges are dropped until it fits.
    ///
    /// # Errors
    /// Input: the last message alone does not fit, or the template refuses the messages. Then nothing is dropped.
    pub fn fit(
        &mut self,
        tokenizer: &Tokenizer,
        template: &ChatTemplate,
        limits: SequenceLimits<'_>,
    ) -> Result<Fitted> {
        let context = limits.context;
        let most = context - context / 8;
        // Exchanges begin with the user's messages. The last one, which is unanswered, stays.
        let begins = |(at, message): (usize, &Message)| (message.role == "user").then_some(at);
        let starts: Vec<usize> = self.messages.iter().enumerate().filter_map(begins).collect();
        let exchanges = starts.len().saturating_sub(1);
        for dropped in 0..=exchanges {
            let (system, from) = (&self.messages[..self.system], starts.get(dropped).copied());
            let from = from.filter(|_| dropped > 0).unwrap_or(self.system);
            let kept = [system, &self.messages[from..]].concat();
            let rendered = template.render_for(
                tokenizer,
                ChatInput { messages: &kept, tools: &self.tools, thinking: self.thinking },
                true,
            )?;
            if tokenizer.fewest_tokens(rendered.text()) > most {
                continue;
            }
            let ids = tokenizer.encode_rendered(&rendered)?;
            if ids.len() <= most {
                self.messages = kept;
                return Ok(Fitted { ids, exchanges, dropped });
            }
        }
        let larger = limits.larger_context();
        // The system message stays and lists the tools, so it may be too long itself.
        let (what, it) = match self.system {
            0 => ("the message", "it"),
            _ => ("the message with the system message", "one of them"),
        };
        Err(Error::input(
            format!("{what} is too long: a context of {context} takes {most} tokens and leaves the rest for the reply"),
            larger.map_or(format!("shorten {it}").into(), |larger| {
                text!(format!("shorten {it}, or start again and "), larger)
            }),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::architecture::GEMMA3;
    use crate::model::presets;
    use crate::text::testing::small_tokenizer;

    #[test]
    fn only_messages_in_turn_are_a_conversation() {
        let of =
            |roles: &[&str]| Conversation::from_messages(roles.iter().map(|role| Message::new(*role, "x")).collect());
        for (roles, asked) in [
            (&[][..], false),
            (&["system"], false),
            (&["user"], true),
            (&["system", "user", "assistant"], false),
            (&["user", "assistant", "user"], true),
        ] {
            assert_eq!(of(roles).unwrap().is_asked(), asked, "{roles:?}");
        }
        for (roles, which) in [
            (&["assistant"][..], "message 1 has the role \"assistant\" where user comes"),
            (&["user", "user"], "message 2 has the role \"user\" where assistant comes"),
            (&["system", "system", "user"], "message 2 has"),
            (&["user", "tool"], "message 2 has the role \"tool\""),
        ] {
            assert!(of(roles).unwrap_err().to_string().starts_with(which), "{roles:?}");
        }
        // Loaded messages are dropped and cleared like typed ones.
        let mut loaded = of(&["system", "user", "assistant"]).unwrap();
        loaded.clear();
        assert_eq!(loaded.messages().len(), 1);
    }

    #[test]
    fn the_oldest_exchanges_are_dropped_and_never_the_system_message() {
        let (tokenizer, template) = (small_tokenizer(), ChatTemplate::from_files(None, None, &GEMMA3).unwrap());
        let shape = presets::preset("gemma3-1b").unwrap();
        let fit =
            |c: &mut Conversation, context| c.fit(&tokenizer, &template, SequenceLimits { shape: &shape, context });
        let mut whole = Conversation::new(Some("Be brief."));
        for i in 0..4 {
            whole.ask(&format!("question {i}"));
            whole.answer(&format!("answer {i}"));
        }
        whole.ask("the last one");

        let all = fit(&mut whole, 4096).unwrap();
        assert_eq!((all.exchanges, all.dropped, whole.messages().len()), (4, 0, 10));
        let most = all.ids.len();
        // The smallest context for all messages. With one position less an exchange is dropped.
        let context = (most..).find(|c| c - c / 8 == most).unwrap();
        assert_eq!(fit(&mut whole.clone(), context).unwrap(), all);
        let mut less = whole.clone();
        let fitted = fit(&mut less, context - 1).unwrap();
        assert_eq!((fitted.exchanges, fitted.dropped), (4, 1));
        let expected = [&whole.messages()[..1], &whole.messages()[3..]].concat();
        assert_eq!(less.messages(), expected);

        // If the last message does not fit, nothing is dropped.
        let mut none = whole.clone();
        let e = fit(&mut none, 8).unwrap_err();
        assert!(e.exit_code() == 2 && e.to_string().contains("too long"), "{e}");
        assert_eq!(none.messages(), whole.messages());
        // The error names the message at fault: with a long system message even the shortest question has no room.
        let mut told = Conversation::new(Some(&"Be brief. ".repeat(40)));
        let mut asked = Conversation::new(None);
        asked.ask(&"why ".repeat(80));
        told.ask("why");
        for (mut talk, what) in
            [(told, "the message with the system message is too long"), (asked, "the message is too long")]
        {
            let e = fit(&mut talk, 64).unwrap_err().to_string();
            assert!(e.starts_with(what), "{e}");
        }
        none.retract();
        assert_eq!(none.messages().len(), 9);
    }

    #[test]
    fn answers_and_exchanges_are_taken_back_and_never_the_system_message() {
        let mut c = Conversation::new(Some("Be brief."));
        assert_eq!((c.turns(), c.take_answer(), c.undo()), (0, None, None));
        c.ask("one");
        c.answer("first");
        c.ask("two");
        c.answer("second");
        assert_eq!(c.turns(), 2);
        let answer = c.take_answer().unwrap();
        assert_eq!((&answer, c.take_answer(), c.is_asked()), (&Message::new("assistant", "second"), None, true));
        c.put_back(answer);
        assert_eq!(c.undo(), Some(Message::new("user", "two")));
        // An unanswered message is undone alone.
        c.take_answer();
        assert_eq!((c.undo(), c.undo(), c.turns()), (Some(Message::new("user", "one")), None, 0));
        assert_eq!(c.messages(), [Message::new("system", "Be brief.")]);
    }

    #[test]
    fn the_system_message_is_replaced_and_outlives_the_exchanges() {
        let mut c = Conversation::new(None);
        c.ask("question");
        c.answer("answer");
        let roles = |c: &Conversation| c.messages().iter().map(|m| m.role.clone()).collect::<Vec<_>>();
        c.set_system(Some("Be brief."));
        assert_eq!(roles(&c), ["system", "user", "assistant"]);
        c.set_system(Some("Be kind."));
        assert_eq!((roles(&c).len(), &c.messages()[0]), (3, &Message::new("system", "Be kind.")));
        c.clear();
        assert_eq!(roles(&c), ["system"]);
        c.set_system(None);
        assert_eq!(roles(&c), [""; 0]);
        // An empty message removes it.
        c.set_system(Some(""));
        assert_eq!((roles(&c), roles(&Conversation::new(Some("")))), (vec![], vec![]));
        assert_eq!(roles(&Conversation::new(Some(" "))), ["system"]);
    }
}
