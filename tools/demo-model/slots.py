"""Words for the slots of phrasings that have nothing to do with what is asked for: who asks, how, and in what tone.

A slot is worded by any of its options, each of which may hold slots again. So a phrasing of four slots stands for
thousands of questions: a model this small learns what a question asks for from many wordings, and little from few.
Options of one slot hold the same of the slots that phrases.py lists, so that a phrasing says what it depends on.
"""

SLOTS = {
    # How a question begins
    "know": "do you know|do you happen to know|can you tell me|could you tell us|could you let me know|"
    "i'd like to know|i need to know|please tell me|would you tell me|any idea|got any idea|i wonder|"
    "we were wondering|tell us|let me know|can you check|could you find out|my friend asks|"
    "my wife would like to know|does your computer know|would you mind telling me|can you say|might i ask|"
    "could i ask you|would you be so kind as to tell me|kindly inform me|i should like to know|gimme a hint|"
    "help me out|i can't find out|remind me|explain to us|nobody could tell me|i keep asking myself|"
    "do your colleagues know|be so good and tell me|does anybody know",
    "wewant": "we want to|we'd like to|we'd love to|we plan to|we hope to|we are hoping to|i want to|i'd like to|"
    "i plan to|i was hoping to|i'd love to|my family wants to|my kids want to|the children would love to|"
    "my friends want to|my wife wants to|my husband would like to|our class wants to|my parents would like to|"
    "we have decided to|we're keen to|we were going to|we intend to|our group plans to|my mother is dying to|"
    "i promised the kids to|i have always wanted to|we've been meaning to|my daughter is desperate to|"
    "the boys can't wait to",
    "planto": "we want to|we'd like to|we'd love to|we plan to|we hope to|we are hoping to|we have decided to|"
    "we're keen to|we were going to|we intend to|our group plans to|our class wants to|we've been meaning to|"
    "we are about to|our club would like to|all of us want to",
    "visit": "see|visit|go to|check out|have a look at|look around|explore|drop in at|go and see|take in|look at|"
    "stop at|spend some time at|come to|swing by|try",
    "visiting": "visiting|seeing|going to|exploring|looking at|coming to|trying|heading to|dropping in at",
    "enter": "get into|enter|visit|see|go into|go to|come to|make it into|walk into|be let into|get to see|be at|do",
    "canwe": "can we|can i|could we|could i|may we|is it possible for us to|are we able to|would we be able to|"
    "will i be able to|can my family|can the kids|can our group|can visitors|can people|can one|are we allowed to|"
    "can my parents|could my daughter|may my son|can a family|would it be possible to|am i able to",
    "wecan": "we can|i can|one can|visitors can|you can|my family can|we could|the kids can|people may|we may|"
    "they let people|you let visitors|my friends could",
    "comes": "we come|i come|we visit|i visit|we turn up|we show up|we arrive|we drop by|my family comes|"
    "our class visits",
    "hourswords": "opening hours|opening times|hours|times|opening and closing times|business hours|visiting hours|"
    "hours of opening|open hours|hours of operation|time table",
    "sep": ", |. |: | - |; |... |? |! |, |. |, so |. so |. ok, ",
    "comma": ", |. |; | - |, |. |... |! |, so |, and |. and ",
    # When, in any order
    "on_d": "on {d}|on {d}|on {d}|this {d}|next {d}|{d}|this coming {d}|come {d}|for {d}",
    "at_dt": "on {d} at {t}|at {t} on {d}|{d} {t}|{d} at {t}|on {d} around {t}|around {t} on {d}|this {d} at {t}|"
    "{t} on {d}|{d}, {t}|at {t} this {d}|on {d}, {t}|next {d} at {t}|at about {t} on {d}|on {d} by {t}|{d}, at {t}",
    "ends": "finish work|get off work|leave the office|get out of school|leave my hotel|come out of a meeting|"
    "knock off|have my lunch break|finish my shift|drop off my mother|finish lunch|get back from town|"
    "check out of our hotel|leave church|pick up my son|get out of a lecture|finish the guided tour|"
    "have my coffee break",
    "event": "my shift ends|our train gets in|our bus arrives|the coach drops us off|our flight lands|"
    "school is over|my meeting ends|lunch is over|our taxi gets us there|the guided tour is over|my course finishes|"
    "my husband gets here|my friend arrives|the star show is over|our lunch ends|my class finishes|the ship docks",
    "plan": "we'd be having a late lunch|we're thinking of a last visit|we'd have an early start|"
    "we want a quick look|i'd come after my run|we'd pop by before dinner|we would come after the feeding|"
    "it would be a short visit|we'd bring a birthday cake|i would stop by after work|we'd go after our coffee|"
    "we'd be coming with a pram|the toddler naps until then|i'd come straight from the dentist|we'd squeeze it in|"
    "we'd meet friends there",
    "dayask": "when is it open|at what times|what hours|how long is it open|when could we come|from when to when",
    # Who
    "heard": "they say|i heard|my neighbour says|the guide book says|somebody told me|i read online|my mother thinks",
    "everyone": "people|everyone|visitors|us|the guests|everybody",
    "companion": "my friend|my neighbour|my guest|my companion|the person with me|one of us|somebody with me|"
    "my visitor",
    "wants": "wants|would like|is thinking about|plans to visit|is going to|wants to see|would love to see|"
    "has chosen",
    "kinone": "mother|father|mum|dad|wife|husband|son|daughter|sister|brother|grandma|grandfather|aunt|uncle|cousin|"
    "niece|nephew|girlfriend|boyfriend|partner|mother-in-law|friend|neighbour|boss|colleague|gran|little boy|"
    "little girl",
    "person": "my {kinone}|my {kinone}|our {kinone}|a friend|somebody here|one of us|the little one|"
    "an old lady here|a man next to me|our teacher|a lady in our group|the guest behind me|one of the kids|"
    "my best friend|our guide",
    "child": "son|daughter|child|kid|boy|girl|little boy|little girl|little one|five year old|six-year-old|toddler|"
    "grandson|granddaughter|nephew|niece|youngest|three year old|stepson|godchild|eldest|small son|small daughter",
    "name": "tom|emma|lucy|ben|max|anna|leo|mia|jack|ella|oscar|lily|paul|nina|tim|rosa|sam|zoe|finn|clara",
    "walker": "a tired toddler|my old mother|a small child|grandpa|my gran with her stick|someone on crutches|"
    "a five year old|my husband with his bad knee|tired legs|a pregnant woman|our little one|an elderly lady|"
    "my father after his operation|short legs|a lazy teenager|somebody with sore feet|my pensioner aunt|"
    "two small kids",
    # Where from: {o} is where the route starts
    "at_o": "we're sitting in the {o}|we're standing by the {o}|i'm at the {o}|i am near the {o}|"
    "we just came out of the {o}|we have been to the {o}|we left the {o}|i'm waiting at the {o}|"
    "we are done with the {o}|we start at the {o}|we've seen the {o}|we'll be at the {o}|we are outside the {o}|"
    "i've got to the {o}|our group meets at the {o}|say we are at the {o}|we're right by the {o}|"
    "we have just reached the {o}|i walked to the {o}|we're over at the {o}|we are coming from the {o}|"
    "we made it to the {o}|from the {o}|right now i'm at the {o}|we stopped at the {o}",
    # Where to, and what about it
    "where": "where is it|which way|which direction|where do we go|how do we get there|can you help|"
    "which path is it|where would that be|where should we walk|any directions|could you point the way|"
    "where can we find it|which way should we walk|can you direct us|where do i have to go|how do i get there|"
    "show us the way|directions|directions please|where exactly is it|what's the way|tell me the way|"
    "which path do i take|where has it gone|how do i find it|in which direction should i walk|where to",
    "howfar": "how far is it|how long is it|how many minutes|how long is the walk|how long does it take|is it far|"
    "how many minutes is that|how long would that take|how far|what's the distance|how long will we need|"
    "how long on foot|is that a long way|how many minutes on foot|how far would that be",
    "total": "how much|what does it cost|price|total|what do we owe|what would that come to|what's the damage|"
    "what would we pay|please calculate|how much is that|what's the bill|how much altogether|what do you get|"
    "what does that make|what will that set us back|sum please|cost|how much money is it|how much do i owe you|"
    "what would you charge|how much in all|can you work it out|what does it add up to|what's the price|price please|"
    "what does that come to|what are we looking at|what do we pay|how much is it in total|what would it be|"
    "total please|what must we pay|and the total|how many euros|how many euros is that|please add it up|"
    "what's the sum|total cost|how much will it be|what's that altogether|what do i have to pay|how much for us|"
    "what is it all together|the total price please|what does it all cost|how expensive would that be|"
    "what will you charge us|tell me the sum",
    "fancying": "want to see|would like to visit|are going to|fancy|want to go to|are off to|are about to visit|"
    "plan to see|are keen on|would love to see|intend to visit|are queueing for|wish to visit|are heading for|"
    "have chosen|hope to see|would like to go to|need tickets for|want into|are thinking about|will be visiting|"
    "want to do|feel like",
    "wantto": "want to|would like to|would love to|are going to|plan to|hope to|are keen to|wish to",
    "join": "suppose we bring|say we bring|alright, then we bring|what if we bring|and suppose we take|"
    "imagine we bring|ok, we also have|then let us add|and what if we add|could we also bring|we will also bring|"
    "now add|and if we take|hm, we are also bringing|let's also count|now we also have|and let's say we bring|"
    "we may bring|we'd also need|and there will also be|we are joined by|there come|along come|"
    "and now there are also|in addition we have",
    "cheap": "is cheaper|costs less|is easier on the wallet|is kinder to my purse|is the cheaper one|"
    "is less expensive|saves us money|is the better price|is lighter on the budget|has the lower price|"
    "comes cheaper|sets us back less|is gentler on the purse|takes less money|hurts the wallet less|"
    "is more affordable|is the lower one in price|is better for a small budget|would cost us less|works out cheaper|"
    "needs fewer euros|"
    "spares our purse|leaves more in my wallet|costs us least|is gentle to my wallet|asks for less money",
    "cheaper_": "spare my purse|be kinder to my wallet|be gentler on our wallets|leave us more money|be less money|cost us less|"
    "be the cheaper visit|come out cheaper|ask less of us|save us a few euros",
    "dearer_": "cost|charge",
    "dear": "is dearer|costs more|is pricier|is more expensive|is harder on the wallet|is the dearer one|"
    "takes more money|has the higher price|sets us back more|is more of a luxury|hurts the purse more|"
    "is the expensive one",
    "near": "is nearer|is closer|is the shorter walk|is less of a walk|is the closer one|is quicker to reach|"
    "is not as far|takes less time to walk to|is kinder to my feet|needs fewer steps|is the shorter way|"
    "can we reach sooner|do we get to faster|is easier to reach on foot|is nearest to us|"
    "is less of a trek|is less walking|is easier for small feet|is the quicker walk|saves our legs|comes first on foot",
    "far": "is further|is farther away|is the longer walk|takes longer to walk to|is more of a hike|is further off",
    "between": "out of|between|of|comparing|choosing between|if i choose between|if you compare",
    # Money: {m} is what the visitor pays with
    "paying": "we pay with {m}|i pay with {m}|here's {m}|i've got {m}|i have {m}|we only have {m}|i give you {m}|"
    "i'm paying with {m}|if i hand over {m}|i only have {m} on me|all i have is {m}|paying with {m}|with {m}|"
    "my wallet holds {m}|there is {m} in my purse|we have {m}|we have got {m} with us|i've {m} here|here you are, {m}|"
    "i can spend {m}|we brought {m}|our budget is {m}|{m} is all we have|my mum gave me {m}|we've got {m}|"
    "i want to pay with {m}|i put down {m}|suppose i pay with {m}|if we pay with {m}|i've only got {m} left",
    "changeback": "how much do we get back|how much do i get back|what do i get back|how much change do i get|"
    "how much change do we get|what change do i get|what's my change|what's the change|how much change|"
    "what will i get back|how much will we get back|how much change would that be|what comes back|"
    "how much money do i get back|what change is there|do i get change|do we get anything back|"
    "how much change is that|what do we get in return|tell me the change",
    "suffice": "is that enough|is it enough|will that do|does that cover it|can we afford it|enough|will it be enough|"
    "would that be enough|does it suffice|is it sufficient|do we have enough|will that cover us|can we manage|"
    "enough or not|does that work out|will this do",
    "verdict": "{changeback}|{changeback}|{suffice}|{suffice}|how much is left|what's left|change|and the change|"
    "the change please|what remains|do i have to add something|how much will be left over",
    "why": "my friend is hungry too|i miscounted|one more turned up|i forgot one|my wife reminds me|that's right|"
    "i counted wrong|we are more than i thought|somebody changed their mind|my {kinone} wants one too|i'm sorry",
    # Times that have nothing to do with the question
    "where_": "castle tower|museum|aquarium|planetarium|greenhouse|boat house|fountain|cafe|restaurant|playground|"
    "lake|tower|gift shop|mini golf course|castle|car park|picnic area|train station",
    "clock": "6|half past six|17:30|5 pm|quarter to four|noon|8 in the evening|3 o'clock|seven|19:15|ten|9 am|"
    "half past two",
    "ride": "bus|train|coach|ferry|flight|taxi|tram|shuttle",
    # Lost things
    "thing": "wallet|purse|phone|mobile|bag|handbag|backpack|rucksack|keys|car keys|umbrella|hat|cap|scarf|gloves|"
    "jacket|coat|glasses|sunglasses|camera|watch|ring|earring|necklace|bracelet|teddy|teddy bear|toy|doll|book|"
    "laptop|passport|ticket|water bottle|lunch box|walking stick|cardigan|pullover|sweater|charger|headphones|"
    "earphones|hearing aid|notebook|id card|credit card|suitcase|pram blanket|dummy|shoe|shopping bag|guide book|"
    "hair band|credit cards|reading glasses|house keys|binoculars|pencil case|kindle|tablet|diary|baseball cap|"
    "lunch bag|"
    "pair of glasses|pair of gloves|pair of spectacles|pair of sunglasses|pair of shoes|spectacles",
    "spot": "in the cafe|in the museum|at the restaurant|on a bench|on the lawn|near the fountain|by the lake|"
    "in the aquarium|at mini golf|at the playground|in the toilets|on the boat|in the planetarium|in the greenhouse|"
    "in the gift shop|at the picnic area|on a table|somewhere in the park|on the path|under a seat|at the bus stop|"
    "on the tower|on the train|somewhere|in here|in the queue|at your counter|by the entrance|next to a bench",
    "helpme": "what now|what can i do|what should i do|whom do i ask|who can help|can you help|"
    "any idea where to ask|where should i go|where do i ask|has anyone handed it in|where can i report it|"
    "who do i talk to|please help|where would it be|can someone look for it|is there an office for that|"
    "where do such things end up",
    # Emergencies
    "victim": "my {kinone}|our {kinone}|somebody|someone|a man|a woman|an old man|an old lady|an elderly gentleman|"
    "an elderly woman|a little boy|a girl|a kid|a visitor|a tourist|a jogger|a pregnant lady|a person|my child|"
    "the man next to us|a lady in our group|one of our pupils|a teenager|a cyclist|a boy from our class|our guide",
    "hurt": "collapsed|has collapsed|just collapsed|fainted|has fainted|passed out|fell down the stairs|fell badly|"
    "has fallen over|is bleeding|is bleeding badly|can't breathe|has trouble breathing|is unconscious|is not moving|"
    "broke an arm|has broken a leg|has chest pain|is having a heart attack|is having a stroke|had an accident|"
    "is choking|hit his head|hit her head on a rock|fell into the lake|fell into the water|is drowning|was run over|"
    "had a fit|is having a seizure|got stung and is swelling up|is very ill|is badly hurt|cut himself badly|"
    "burnt her hand|is having an allergic reaction|doesn't wake up|is in terrible pain|twisted an ankle badly|"
    "needs a doctor|needs an ambulance|needs medical help|lies on the ground|feels very dizzy and faint|"
    "threw up and is pale|has a deep cut|is not breathing|is seriously injured|has been bitten by a dog|"
    "just keeled over|tripped and is bleeding|"
    "is lying on the ground and doesn't answer|does not react any more|doesn't respond|lies there motionless|is lying on the path and won't get up|has gone all pale and limp",
    "hurry": "help|quick|please help|please hurry|what should we do|what do i do|we need help|who do i call|hurry|"
    "it is urgent|call someone|send someone|come quickly|get a doctor|what now|is there a doctor|"
    "we need an ambulance",
    "strayed": "has wandered off|wandered away|ran off|ran away|disappeared|has vanished|got lost|is gone|"
    "is missing|slipped away|is nowhere to be seen|is nowhere around|was here a minute ago|"
    "let go of my hand and is gone|didn't come back|has not come back|got separated from us|walked off alone|"
    "is lost|is lost in the crowd|did not come out of the toilets|went after a dog and is gone|can't be found|"
    "strayed from our group|was right behind us",
    # Groups
    "crowd": "{x} colleagues and me|{x} colleagues and i|{x} friends and me|we are {x}|we're {x} people|"
    "there are {x} of us|a class of {x}|a choir of {x}|a group of {x}|our club of {x}|a football team of {x}|"
    "a coach with {x} people|a party of {x}|a stag party of {x}|a whole class|our big family|{x} scouts|"
    "a bus full of pensioners|our kindergarten|our office outing|a large family|{x} of us|my school class|"
    "a birthday party with {x} guests|a family reunion of {x}|me and {x} mates|{x} pupils with their teacher|"
    "the {x} of us|our sports club|a crowd of {x}|a team of {x}|our walking group of {x}|all {x} of us|{x} cousins|"
    "me and {x} others|a big group|our company trip of {x}",
    "deal": "is there a better price|is there a better price for that many|do we get money off|is there a discount|"
    "do we get a discount|any discount|can we get a deal|do we get it cheaper|is there a group rate|any reduction|"
    "is it cheaper together|do you give us something off|do groups pay less|is there a special rate|"
    "what's the discount|would that be cheaper|do you do group prices|do we count as a group|is there a rebate|"
    "how much do we save|can you do us a better price|is anything taken off|what percentage do we get off|"
    "any special offer|do we pay less",
    # What precedes a follow-up, and changes nothing
    "remark": "that's early|that's late|that's expensive|not bad|a bit late|fine|great|ok|cool|good to know|perfect|"
    "too bad|what a pity|pity|shame|oh no|alright|understood|i see|lovely|that's far|wow|phew|right|super|"
    "nice, thanks|thank you|got it|ah ok|hm|that's a lot|that's not much|oh that's cheap|that suits us|that works|"
    "too late for us|we can't make that|that doesn't suit us|makes sense|sounds good|my wife will be happy|good|hmm|"
    "oh|thanks|nice|that's fine|excellent|wonderful|that's too early for us|that's close|interesting|okay then|"
    "very good|right then|brilliant|i thought so|as i thought|i was afraid of that|not for us|that's a long way|"
    "that's near|we can do that|we might do that|let me think|ok, noted|thanks a lot|ah|aha|okay, thank you|"
    "hm, not ideal|good, good|fair enough|that's steep|quite a walk|that's quick|they work hard|lucky us|"
    "that is a shame|much appreciated|cheers|"
    "phew, right|righto|right you are|blast|oh bother|good grief|well well|never mind|splendid|grand|super duper|all right|good, good, good|oh well|i say|fancy that|gosh|hmm hmm|crikey|lovely stuff|bless you|oh dear|marvellous|that's a fair march|that's quite something",
    "dot": ". |, |! |... | - |; |. |. |, ok, |. and |. so ",
}  # fmt: skip
