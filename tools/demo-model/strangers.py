"""Questions that the kiosk cannot answer, so that it learns to say so.

Four kinds: everyday topics, kiosk phrasings about places and goods that the park does not have, sentences put together
at random, and mere letters. A phrasing that begins with `*` is held out, and so is every word that `dialogues.held`
picks; the rest is for training.
"""

PLACES = (  # two-word names keep their space
    "zoo|cinema|theatre|swimming pool|library|hospital|airport|hotel|bank|supermarket|bakery|pharmacy|church|cathedral|"
    "stadium|opera|harbour|beach|post office|police station|school|university|town hall|market|casino|gym|sauna|ski lift|"
    "cable car|ferry|lighthouse|palace|windmill|bridge|shopping mall|hairdresser|dentist|embassy|concert hall|night club|"
    "bowling alley|ice rink|roller coaster|ferris wheel|water slide|petting farm|rose garden|art gallery|maze|escape room|"
    "exit|information desk|way out|lake|"
    "skate park|tennis court|football field|riding school|campsite|youth hostel|petrol station|car wash|laundry|bookshop|"
    "toy shop|flower shop|pizza place|burger bar|pub|monkey house|elephant house|lion cage|butterfly house|bird park|"
    "waterfall|cave|volcano|monastery|chapel|prison|factory|mine|farm|vineyard|observatory|tunnel|dungeon|treehouse|spa|"
    "race track|tram|metro station|subway|taxi stand|harbour|pier|ghost train|carousel|trampoline|climbing wall|moon base"
).split("|")
GOODS = (
    "burger|pizza|hot dog|beer|glass of wine|cocktail|salad|steak|pasta|bread roll|banana|apple|cookie|muffin|donut|pancake|"
    "waffle|cola|lemonade|milkshake|smoothie|book|newspaper|toy|teddy bear|ball|hat|cap|scarf|bag|backpack|pen|pencil|"
    "calendar|poster|candle|necklace|ring|watch|phone|camera|battery|ticket to london|car|house|bicycle|boat|horse|cat|"
    "sofa|chair|table|lamp|computer|television|guitar|piano|shoe|sock|jacket|coat|dress|skirt|sushi|taco|burrito|sausage"
).split("|")
NOUNS = (
    "cat|horse|bird|fish|elephant|tiger|snake|spider|mouse|cow|sheep|lion|bear|whale|dinosaur|dragon|unicorn|robot|"
    "president|king|queen|teacher|pilot|singer|actor|writer|painter|player|father|mother|brother|sister|friend|"
    "neighbour|boss|city|country|river|mountain|ocean|island|desert|forest|planet|moon|sun|star|universe|earth|atom|"
    "computer|laptop|car|train|plane|ship|engine|rocket|satellite|book|song|film|movie|game|poem|story|"
    "joke|picture|language|word|letter|number|colour|flag|money|job|house|kitchen|garden|door|window|table|chair|bed|"
    "football|tennis|basketball|chess|music|piano|guitar|bread|cheese|pizza|soup recipe|wine|beer|milk|egg|salt|sugar|"
    "war|peace|law|history|science|physics|chemistry|biology|religion|love|time machine|dream|weather|rain|snow|storm|"
    "election|government|tax|bank account|insurance|passport|visa|doctor's bill|medicine|virus|heart|brain|tooth|hair|"
    "shoe|shirt size|dress|ring|gold|silver|iron|water pressure|electricity|battery life|keyboard|email|website"
).split("|")
NAMES = (
    "france|germany|spain|italy|japan|china|india|brazil|canada|mexico|egypt|kenya|norway|sweden|poland|turkey|russia|"
    "australia|paris|london|berlin|rome|madrid|tokyo|new york|sydney|moscow|vienna|einstein|newton|mozart|beethoven|"
    "shakespeare|picasso|napoleon|caesar|cleopatra|lincoln|darwin|google|apple|microsoft|amazon|mars|jupiter|venus|"
    "the roman empire|the second world war|the moon landing|the olympic games|the world cup|python|linux|bitcoin|"
    "harry potter|star wars|santa claus|batman|the beatles|madonna|alice|bob|peter|mary|john|anna|the pope"
).split("|")
VERBS = (
    "make|build|fix|cook|bake|write|read|paint|draw|sing|play|learn|teach|grow|plant|feed|train|sell|find|lose|win|break|"
    "open|clean|wash|drive|fly|sail|swim|run|jump|climb|sleep|dream|think|remember|forget|know|understand|explain|"
    "translate|count|measure|invent|discover|destroy|repair|cut|carry|throw|catch|eat|drink|kill|save|change|choose"
).split("|")
ADJECTIVES = (
    "big|small|tall|fast|slow|old|new|heavy|light|hot|cold|deep|high|long|short|strong|weak|clever|stupid|funny|sad|happy|"
    "angry|beautiful|ugly|rich|poor|famous|dangerous|safe|loud|quiet|bright|dark|clean|dirty|soft|hard|easy|difficult|red|"
    "blue|green|black|white|round|strange|wild|dry|wet|sweet|sour|empty|full|young|modern|expensive|popular|important"
).split("|")

TOPICS = """
    what is the capital of {m}
    (who is|who was|who are) {m}
    when (was|is) {m} born
    where is {m}
    how (big|old|far|tall|rich) is {m}
    what is the (population|language|flag|president|weather) (of|in) {m}
    tell me (a|one|another) (joke|story|poem|riddle|secret|fairy tale|fun fact)
    tell me [something|a story] about {m}
    what do you (think|know) (of|about) {m}
    who (won|will win|is winning) (the|the last) (world cup|election|match|game|race|final|championship)
    (what is|how is|what will be) the weather [like] [today|tomorrow|on {d}|this week]
    will it (rain|snow|be sunny|be cold|be warm) (today|tomorrow|on {d}|this weekend)
    how (warm|cold|hot) is it [today|outside]
    what time is it [now|in {m}]
    (write|compose|make) [me] a (poem|song|story|letter|program|essay|speech) [about {m}|about a {n}]
    how do i (make|cook|bake|prepare) (a pizza|bread|rice|an omelette|pancakes|pasta|a birthday cake|noodles)
    translate (this|hello|good morning|{n}) (into|to) (french|german|spanish|latin)
    how do you say {n} in (french|german|spanish|latin)
    what is {x} (times|minus|divided by) {y}
    how much is {x} (times|minus|x|*|-|divided by|/) {y}
    what is the (square root|half|double) of {x}
    what is the meaning of (life|love|{n}|the word {n})
    what does the word {n} mean
    (do|did) you (like|love|hate|have|know|see) (me|music|football|{m}|cats|a {n}|people|{n}s)
    can you (sing|dance|swim|drive|cook|fly|lie|dream|play chess|program|see me|hear me|think)
    (will you marry me|i love you|i hate you|you are stupid|you are ugly|shut up|go away|you are wrong|that is wrong)
    (where|when) (were you|was i) born
    how old (are you|am i)
    where (do|did) (you|i) (live|sleep|work|grow up)
    what is (your|my) (favourite|best) (colour|food|song|film|animal|book|number|place|team)
    (when|how) (is|will be) the next (train|flight|bus|election|full moon|eclipse|war|world cup)
    when does the (train|bus|plane|film|concert|match|game) (to {m}|) (leave|start|arrive)
    how do i get to {m}
    how (long|far) is it to {m}
    how much is a (flight|train ticket|bus ticket|hotel room|taxi) to {m}
    (book|order|call|reserve) [me] (a taxi|a flight|a table|a room|a pizza|an appointment)
    (play|sing|stop|turn on|turn off) (some music|the music|a song|the light|the radio|the television)
    (set|start) (an alarm|a timer) [for {x} minutes]
    what is the (latest|news|stock price) (news|about {m}|of {m})
    who (invented|discovered|made|painted|wrote|built) (the {n}|{m}|it)
    why is the (sky blue|grass green|sea salty|{n} {j}|{n} so {j})
    why (do|does|did|can) (people|birds|fish|cats|we|the {n}|{m}) {v} [the {n}]
    how (many|much) {n}s (are there|do people have|are in the world|fit in a {n})
    how (many|much) (people|animals|stars|countries|bones|legs|teeth) (are there|does a {n} have|live in {m})
    what is a {n}
    what is the difference between a {n} and a {n}
    how does a {n} work
    how do i {v} (a|my|the) {n}
    (can|could|should|may) i {v} (a|my|the|your) {n}
    is (a|the|my) {n} {j}
    what is the most {j} {n} [in the world]
    do you have a {n}
    give me (money|a {n}|your {n}|a kiss|an answer|a hint)
    i (want|need|would like) to {v} (a|the|my) {n}
    i (want|need|have|like|saw|bought) a {j} {n}
    my {n} is {j}
    the {n} is {j}
    (explain|describe|define) (the {n}|{m}|a {n}|gravity|evolution|democracy|quantum physics|inflation)
    (ignore|forget) (all|your|the) (instructions|rules) [and {v} the {n}]
    which {n} is the most {j}
    what should i (wear|cook|read|watch|buy|study|do with my life|say to my {n})
    who is the (richest|tallest|oldest|fastest) (man|woman|person|{n}) [in {m}|in the world]
    what happened in {m}
    what (happened|was) in (1492|1789|1914|1945|1969|2001|2020)
    recommend (a|me a) (book|film|song|restaurant in {m}|game|hotel)
    how do i (lose weight|get rich|sleep better|learn english|find a job|make friends|quit smoking|fix my {n})
    what is (python|rust|html|a compiler|machine learning|a neural network|the internet|blockchain)
    (write|fix|explain) [the|some|this] (code|function|program|script) [in python|for me]
    are there (ghosts|aliens|sharks|lions|bears|wolves|snakes|bees|ticks) [here|in the park]
    how (tall|old|big|heavy|deep) is the (castle tower|museum|aquarium|lake|fountain|planetarium|greenhouse)
    who (built|owns|runs|painted|designed) the (museum|castle tower|park|aquarium|greenhouse|fountain)
    how many (fish|paintings|stars|trees|people|animals|visitors|steps) are in the (museum|aquarium|castle tower|park)
    what (fish|animals|paintings|plants|films) are in the (aquarium|museum|greenhouse|planetarium)
    can i (marry|camp|sleep|swim|fish|ski|have a party|work) (in the park|here|in the museum|in the lake)
    do you have (jobs|a job|work|rooms|a pool) (for me|here|)
    (who|what) is the (director|boss|owner|manager|mayor) [of the park|here]
    why is the (museum|aquarium|planetarium|greenhouse|castle tower) (closed|so expensive|so small|called that)
    how (busy|crowded|full) is (it|the park|the museum|the aquarium|mini golf) [on {d}|on weekends|in the morning|\
        usually]
    how long (does a visit to|do people stay in|do i need for|does it take to see) the (museum|aquarium|planetarium|\
        greenhouse|castle tower)
    do (i|we) (have to|need to|must) (book|reserve) [in advance|online|a time slot] [for the planetarium|for the \
        museum|for the boat house]
    (which|what) (attractions|places|tickets) (cost|are) (less than|under|below|more than) {x} euros [for adults|for \
        children]
    how far is (it to|) (the city|the town centre|the motorway|the beach|the airport|my hotel|the next village|{m}) [from \
        here|from the park]
    how many (km|kilometres|miles|hours) (is it|) to (the city|the airport|{m}|the next town|the sea)
    how (far|long) (do we walk|is it|is the walk) (all the way|once|right) (around|round) the (park|lake)
    (how far|how long|how many minutes) is it from one end (of the park|) to the other
    how (far|long) is (the main gate|the entrance|the exit|the north gate) [from here]
    what can (i|we) (see|visit|do|buy|afford) (for|with) {x} euros
    is there (an age limit|a minimum age|an audio guide|a dress code|a cloakroom|a queue|a waiting time) [at the \
        museum|at the boat house|for the castle tower]
    how old (do you have to be|must i be|must children be) (for|to visit) (mini golf|the boat house|the castle tower|\
        the planetarium)
    (what|which) (exhibition|exhibitions|film|films|concert|event|events) (is|are) (on|there) [at the museum|in the \
        planetarium|on {d}]
    how much (is|are|does|do) (a locker|the lockers|the toilets|the toilet|the picnic area) [cost]
    (who|what) is (playing|singing) (here|in the park) [on {d}]
    how many (visitors|people|guests|tourists) (come|come here|visit the park) (on {d}|every year|every day)
    when is the best (time|season|month) to (come|visit)
    can (i|we) (rent|hire|borrow) a (bike|wheelchair|stroller|car|scooter|audio guide|locker key)
    when does the (last|first|next) (bus|train) (leave|go|come|arrive) [on {d}]
    which (bus|train) (goes to|stops at) (the city|{m}|the airport|my hotel)
    how do i get (home|back to my hotel|to the motorway|to the airport|to the city|downtown)
    is there a (discount|special price) for (soldiers|teachers|locals|members|disabled people|birthday children|the \
        unemployed)
    how long (is|are) the (queue|line|star show|guided tour|boat trip|lake)
    (who|what) (is|was) (in|on|at) the (castle tower|boat house|greenhouse) (in 1800|before|long ago)
    how much (did|do) (you|they) (earn|pay for the {n}|spend)
    (is|are) the (soup|cake|sandwiches|ice cream|coffee) (vegan|gluten free|fresh|home made|organic|good)
    how many calories (has|does) (the cake|the soup|an ice cream) [have]
    what (flavours|sorts|kinds) of (ice cream|cake|soup|tea|juice) (do you have|are there)
    what (sizes|colours) (do|are) the (shirts|umbrellas|mugs) [come in]
    which (place|attraction) (stays open|is open) the (longest|latest) [on {d}]
    (what|which place) (opens|closes) (first|last|earliest|latest) [on {d}]
    (what|which) is the (biggest|best|most popular|oldest|newest|most beautiful) (attraction|place|building) [here|in \
        the park]
    how many (attractions|buildings|toilets|restaurants|paths|trees) (are there|do you have|does the park have)
    what is the cheapest (drink|thing|dish|souvenir|meal) (at the cafe|in the gift shop|at the restaurant|on the menu)
    (is it|are tickets) cheaper (online|on weekdays|on {d}|in the evening|in winter|if we book ahead)
    (do you have|is there) (an annual pass|a season ticket|a combined ticket|a day pass|a loyalty card|a voucher)
    (how many people|who) (work|works) (here|in the park|at the museum)
    where is the (nearest|closest) (petrol station|hotel|supermarket|pharmacy|bank|hospital|town|motorway)
    which is (better|nicer|more fun|more interesting), the (museum|aquarium|planetarium) or the (greenhouse|castle \
        tower|boat house)
    is the (museum|aquarium|planetarium) better than the (greenhouse|castle tower|boat house)
    how do (i|we) get to (the park|alder park) (by car|by bus|by train|from the city|from the airport)
    (what|which) is your favourite (attraction|place|building|fish)
    (can|could) you plan (my|our) day
    what is the (address|postcode|email|website) of (the park|alder park)
    how (big|large|long|wide) is (the park|alder park)
    (how many|what) (calories|ingredients|allergens) are in the (cake|soup|sandwich|ice cream)
    (is there|do you have) a (vegan|gluten free|halal|kosher|sugar free) (cake|soup|menu|sandwich|ice cream)
    what does (a meal at the restaurant|dinner at the restaurant|a main course) cost
    (can|could) (you|i) (reserve|book) (me|us|) (a table|tickets|a boat|a guide) [for {d}|for tomorrow]
    who (won|scored) (yesterday|last night|the game)
    (do|can) you (help me with|do) my (homework|taxes|essay|maths)
    (my|our) (flight|train|bus) is (late|delayed|cancelled), what (now|should i do)
    what is the (temperature|humidity|wind|air quality) (today|outside|in the park)
    how (many|few) (stairs|steps|windows|rooms|floors|benches|tables|seats|boats|holes|plants|trees|doors) (does|has) \
        the {where_} [have]
    how (many|few) (stairs|steps|windows|rooms|floors|benches|tables|seats|boats|holes|plants) are (there|) in the \
        {where_}
    (what|which) (colour|size|shape|style) is the {where_}
    (who|which architect|which king) (built|designed|planned|opened|owns|paints|cleans|guards) the {where_}
    (when|in which year|why) was the {where_} (built|opened|founded|closed down|painted|restored)
    how (high|wide|deep|heavy|loud|warm|cold|dark) is (it in|it inside|) the {where_}
    (is|was) the {where_} (haunted|heated|air-conditioned|boring|new|famous|made of stone|made of glass|full|empty)
    (are there|do you have) (chairs|blankets|umbrellas to borrow|free snacks|audio guides|lifeguards|toys|heaters) at \
        the {where_}
    {know} (who built|how old is|how high is|who runs|who cleans) the {where_}
    {know} (the capital of {m}|who {m} is|how to {v} a {n}|the price of a {n}|a good {n}|how old {m} is)
    {wewant} (buy|sell|rent|{v}) a (real |big |)({n}|{j} {n}){comma}(can you help|how|where|any ideas)
    {canwe} ({v} a {n}|get married here|stay overnight|swim in the lake|have a barbecue|fly a drone|light a fire|pick \
        flowers)
    {canwe} (ride a pony|feed the ducks|bring a tent|sleep in the park|play loud music|go fishing|rent a bike) here
    {person} (wants to|would like to|likes to|has to) {v} (a|the) {n}{comma}(what now|how|any tips|can you help)
    (who|which team) (won|lost|plays|scored|is playing) (the football|the match|the cup|the tennis|the derby|the \
        race) [last night|on {d}|now]
    (can|could|would) you (recommend|suggest|name|book) [me|us] (a|some|a good|a nice|a cheap) ({n}|{j} {n}|b&b|hostel|inn|place to sleep|\
        campsite|bar|pub|nightclub|dentist|guesthouse) [for (tonight|the night|today|tomorrow|this evening|two nights)]
    {know} a (good|nice|cheap|quiet|{j}) (hotel|hostel|inn|b&b|pub|bar|guesthouse|{n}) for (tonight|the night|tomorrow|today|the weekend)
    (where|in which hotel) (can|should|could) (we|i) (sleep|stay|spend the night) (tonight|tomorrow|today|in town)
    (what|which) (film|music|concert|match|news|programme) is on (television|tonight|the radio|on {d})
    (where|how) {canwe} (get|find|buy|rent) (a hotel room|a taxi|sun cream|a swimsuit|a sim card|petrol|a newspaper|\
        medicine)
    where is the (nearest|next|closest|best) (pharmacy|swimming pool|petrol station|hotel|nightclub|airport|church|\
        supermarket)
    (what is|what's|how is) the weather (going to be|tomorrow|on {d}|this weekend|like|forecast)
    (will|does|is) it (rain|snow|freeze|get hot|be sunny|be windy) [here] (on {d}|tomorrow|later|this week|at night)
    (tell|read|sing|write) (me|us) (a|another|your best|a short) (joke|poem|song|story|bedtime story|riddle|limerick)
    (what|how much) (is|are) {x} (minus|times|divided by|percent of) {y}
    (how|where) do i (learn|study) (to {v}|german|maths|the piano|cooking)
    how (old|tall|clever|rich|heavy) are you
    (what|which) (bus|train|tram) (goes|runs|takes me) to (the city|{m}|the airport|my hotel|the beach)
    when does the (last|next|first) (bus|train|boat|ferry) (leave|go|depart) [home|for {m}|on {d}]
    how (long|many hours|many minutes) (does|will|would) (mini golf|a boat trip|a tour|the star show|the museum|a \
        visit) (take|last)
    (how long|how many minutes) (is|are) the (queue|line|wait|waiting time) (at|for) the {where_}
    (is|are) the (food|coffee|staff|toilets|prices|sandwiches) (good|nice|clean|friendly|fresh|fair) [here|in the cafe]
    (do|does) (the cafe|the restaurant|you) (have|serve|sell) (vegan|gluten free|halal|organic) (food|cake|dishes|meals)
    what (does|would) (a main course|a pizza|dinner|a bottle of wine|a steak|a salad) cost (in|at) the restaurant
    (can|could) (you|i|we) (book|reserve) (a table|a boat|a tour guide|a birthday room|the whole museum) [for {d}|for \
        {x} people]
    (who|what) was {m}
    (my|our) {kinone} (is|seems|looks) (angry|sad|bored of me|in love|old|clever|a bit strange|very tall)
    (why|since when) (is|are) (people|cats|birds|{n}s|all {n}s) so {j}
    what (happens|happened) to the {n}
    (recommend|suggest) (me|us) (a|some) ({n}|good book|film|city to visit|hotel|nice song)
    (solve|check|correct|finish|do) (my|this|our) (homework|equation|crossword|essay|exam|puzzle)
    (i|we) (dreamt|heard|read|wrote) (of|about) a {j} {n}
    (are there|do you have) (lions|bears|wolves|monkeys|penguins|snakes|horses|ghosts|pirates) (here|in the park|on \
        the island)
    * what is the longest {n} in {m}
    * could you write a short poem about the {n}
    * what is the biggest city in {m}
    * is {m} a {j} place
    * how can i {v} a {j} {n}
    * do you think that {m} is {j}
    * who was the first {n} in {m}
    * what is the weather in {m} like
    * tell me a joke about a {n}
    * why is my {n} so {j}
    * what should i know about {m}
    * where can i learn to {v} a {n}
    * what is the price of a {n} in {m}
    * how much does a {j} {n} weigh
    * can you explain how a {n} works
    * what would happen if the {n} were {j}
    * please tell me the name of the {n}
    * how many {n}s are there in {m}
    * when did {m} {v} the {n}
    * is it true that the {n} is {j}
    """

# Words by part of speech, chained at random into sentences without sense.
SHAPES = (
    "Q V the N", "Q is the J N", "Q do N s V", "Q can i V a N", "the N is J", "i V the J N", "V the N", "V my N please",
    "is M J", "M and M", "Q did M V the N", "do you V N s", "N", "M", "J N", "Q is M", "my N can V", "Q are N s J",
    "Q should i V", "are you J", "i am J", "it is J", "you V like a N", "a N and a N", "Q about N s", "Q if the N is J",
    "V a N for me", "give the N to M", "Q N is this", "can a N V", "does the N V", "have you ever seen a N", "V", "J",
    "Q was the N of M", "i think M is J", "we V N s on D", "there is a N in my N", "Q much N is in a N",
)  # fmt: skip
QUESTION_WORDS = ("what", "who", "why", "how", "when", "where", "which", "whose", "how many", "how much", "how often")


def sentence(rng, words, shapes=SHAPES):
    """A random sentence; `words(list, rng)` draws an allowed word."""
    lists = {"N": NOUNS, "V": VERBS, "J": ADJECTIVES, "M": NAMES}
    text = []
    for part in rng.choice(shapes).split():
        if part in lists:
            text.append(words(lists[part], rng))
        elif part == "Q":
            text.append(rng.choice(QUESTION_WORDS))
        elif part == "D":
            text.append(rng.choice(("monday", "friday", "sunday")))
        elif part in ("s", "ed"):
            text[-1] += part
        else:
            text.append(part)
    return " ".join(text)


STATEMENTS = (
    "my N is J", "i V ed a N", "we like N s", "we have a J N", "i am J", "my N s are J", "we come from M",
    "i have been to M", "my N said hello", "our N is a bit J", "we just saw a J N", "i V every day",
)  # fmt: skip
ASIDES = (  # with numbers that have nothing to do with the question
    "our {x} kids are tired|we have been here for {x} hours|it is our {x}nd visit|we have {x} hours left|i am {x} years old|"
    "my daughter is {x}|it's {x} degrees outside|our hotel is {x} km away|we have {x} dogs|my two boys are hungry|"
    "our three girls can't wait|my wife is tired|the children are excited|we came by bus|it is so hot today|i love parks|"
    "we are from {x} miles away|we just had lunch|our train was late|the sun is shining|we have come a long way|"
    "my phone says it's near|i read about it online|it's my birthday|we are on our honeymoon|we're visiting friends here|"
    "my grandmother can hardly walk|we have heard so much about it|last year it rained all day|our guide book is old|"
    "someone said it's worth it|we are students from abroad|i'm here on business|we've got a pram with us|"
    "my son loves boats|my daughter is mad about golf|we were here {x} years ago|i promised it to the kids|"
    "our {ride} leaves at {clock}|the {ride} home goes at {clock}|dinner is at {clock}|i have to be home by {clock}|"
    "my {kinone} turned {x} last week|it's {x} degrees out here|we drove {x} kilometres|i am in row {x} of the queue|"
    "we have a concert at {clock}|the kids have been up since {clock}|i am {x} weeks pregnant|we are in hotel room {x}|"
    "i've got {x} euros left|breakfast was at {clock}|we must be back at the hotel by {clock}|we stay for {x} days|"
    "there were {x} people in the queue|my {kinone} waits for me until {clock}|two of us are vegetarians"
).split("|")
REMARKS = (  # without numbers, though with words that the kiosk knows from its questions
    "i had a coffee at the hotel|our toddler is asleep|the dog stayed at home|my {kinone} hates fish|it may rain later|"
    "we ate ice cream on the way|i read your brochure|my wife is waiting outside|we brought our own sandwiches|"
    "my shoes are killing me|the queue is so long|i am a bit deaf|my {kinone} recommended this park|i love this place|"
    "we had a cup of tea on the train|there was a traffic jam|i hope this is not a silly question|grandma is tired|"
    "the baby is crying|the children are hungry for adventure|my {kinone} is on the phone|"
    "we are staying near the station|"
    "my phone is slow|it's our wedding anniversary|my {kinone} loves old buildings|we've just had a cake at home|"
    "it is lovely here|this is my first visit|my boss gave me the day off|i left the car at home|we walked all the way|"
    "i hurt my foot last year|my {kinone} is a teacher|my {kinone} used to be a student here|"
    "we have seen it on television|"
    "the kids have eaten already|bags, bags, bags|what a crowd|oh my poor feet|sun, sun, sun|"
    "here we are at last|well, this is nice|my {kinone} is hopeless with maps|the lake looks lovely|"
    "there goes my umbrella|my {kinone} has an empty stomach|my little one can hardly wait|what a walk|"
    "the weather is fine|you have a nice voice|my english is not so good|we're in a hurry|"
    "our stroller has a flat tyre|my battery is full|we are tired of shopping|my {kinone} never smokes|"
    "i am nearly there|"
    "i used to work in a museum|my {kinone} can't decide|we are not from here|school is out|the little one is tired"
).split("|")


def statement(rng, words, bare=False):
    """Something that a visitor says by the way, its slots left open; if `bare`, nothing that could be counted."""
    if bare or rng.random() < 0.35:
        return rng.choice(REMARKS)
    if rng.random() < 0.7:
        return rng.choice(ASIDES)
    return sentence(rng, words, STATEMENTS)


def letters(rng):
    """One to four words that are none."""
    return " ".join(
        "".join(rng.choice("etaoinshrdlucmfwypvbgkqjxz") for _ in range(rng.randint(3, 9)))
        for _ in range(rng.randint(1, 4))
    )


def invented(rng):
    """A word that can be pronounced but means nothing, for places and goods that no list names."""
    return "".join(
        rng.choice(("b", "br", "d", "f", "g", "gl", "k", "l", "m", "n", "p", "pl", "r", "s", "st", "t", "tr", "v", "z"))
        + rng.choice(("a", "e", "i", "o", "u", "oo", "ee"))
        + rng.choice(("", "", "l", "n", "r", "s", "t", "m"))
        for _ in range(rng.randint(1, 3))
    )
