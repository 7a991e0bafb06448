"""How visitors word their questions.

A phrasing is a template: `(a|b)` is a choice, `[a]` may be left out, `{p}` is a slot. A phrasing that begins with `*`
is held out: training never uses it. Written in lower case without a final mark; dialogues.py adds case and marks.

A phrasing too long for a line goes on after a backslash.

Slots: {p} place, {o} place of origin or of comparison, {is} is/are for {p}, {d} day, {t} time, {a} one visitor with
article ("an adult"), {c} visitors in the plural, {party} visitors with numbers, {are} the same as a sentence, {items}
goods with numbers, {m} money, {along} a sentence that counts the speaker in, {why} a reason, {i} a thing with article, {is_} goods in the plural, {x} {y} numbers, {n} hours, {dog} a breed,
{more} {fewer} {new} {old} how a party changes. All others stand in slots.py.
"""

# Phrasings that name what they ask about.
NAMED = {
    "hours": """
        (i'm|i am|we are) (interested in|planning to visit|going to) the {p}, when is it open
        the {p}, when is it open
        {p} open when
        open times {p}
        when could (i|we) come to the {p}
        hours for {p}
        when {is} the {p} open
        (what|which) are the (opening hours|opening times|hours) (of|for|at) the {p}
        (opening hours|opening times|hours) [of|for] [the] {p}
        {p} (opening hours|opening times|hours)
        when can (i|we) visit the {p}
        (tell|give) me the (opening hours|opening times|hours) of the {p}
        how long {is} the {p} open
        (could|can|would) you tell me when the {p} {is} open
        (i would|i'd) like to know when the {p} {is} open
        do you know the (opening hours|opening times) of the {p}
        what time does the {p} open and close
        from when to when is the {p} open
        at what times can (i|we) (go to|visit|see) the {p}
        when does the {p} (open|close)
        what time does the {p} (open|close)
        i (need|want) the (opening hours|opening times|hours) (of|for) the {p}
        when is the {p} open (during|in) the week
        * what hours is the {p} open
        * when may (i|we) visit the {p}
        * can you give me the opening times for the {p}
        * i'd like the opening hours of the {p}
        * do you know when the {p} is open
        opening times for the {p} (pls|please)
        when do you open the {p}
        what hours does the {p} keep
        when are the doors of the {p} open
        (i'd|i would|we'd|we would) like to see the {p}, when can (i|we) come
        when is the {p} (actually|usually|normally) open
        (how long|until when) can (i|we) stay (at|in) the {p}
        (when|what time) (should|could) (i|we) be at the {p}
        is there a good time to (visit|see) the {p}, when is it open
        (any idea|got any idea|no idea) when the {p} (is open|opens)
        does the {p} have (long|fixed|special) opening hours
        (have you got|do you have) the (opening times|hours) for the {p}
        when (can|could) (one|people|visitors) (visit|see|get into) the {p}
        when is the {p} open on (weekdays|working days)
        (is the {p}|when is the {p}) open (during the week|on weekdays|from monday to friday|all week)
        on which days and at what times is the {p} open
        what days and (times|hours) is the {p} open
        what are the {p} (opening hours|opening times|hours)
        what are the {p}'s (opening hours|opening times)
        the {p}'s (hours|opening hours|opening times)
        (do you have|have you got|is there) a (timetable|schedule) (for|of) the {p}
        when does the {p} (let people in|receive visitors|open its doors)
        how early and how late is the {p} open
        from what time (until|till|to) what time is the {p} open
        (until|till) what time (is the {p} open|can i stay in the {p}|may we stay at the {p})
        how (late|early) (is the {p} open|does the {p} open|does the {p} close)
        opening and closing (time|times) (of|for) the {p}
        can you check when the {p} is open
        please (tell|give) me the (times|hours) (for|of) the {p}
        is the {p} open (late|in the evening|in the evenings|at night|early|in the morning|in the afternoon)
        does the {p} (open early|close late|close early|stay open late)
        until when (may|can) (the kids|children|my daughter|my son|our boys) (play|stay|be) (at|in) the {p}
        (when|what time) does the {p} (shut|close) (at night|in the evening|in the evenings|each day|every day)
        {know} (when|at what times|during which hours) the {p} (is open|can be visited|welcomes visitors|lets people in)
        {wewant} {visit} the {p}{comma}(when|at what times|what hours) (is it open|does it open and close|could we come)
        when {canwe} {enter} the {p}
        (what|which) {hourswords} does the {p} (have|keep)
        the {p}{sep}{hourswords}
        {hourswords}{sep}the {p}
        {hourswords} (for|at|of|in) the {p}
        (give|send|show|read) (me|us) the {hourswords} (of|for|at) the {p}
        the {p}{sep}(when|what times|which hours|from when till when)
        {comes} to see the {p}{comma}when (is it|will it be|does it) open
        {know} the {hourswords} of the {p}
        i am (planning|preparing|timing) a {p} visit{comma}(what are the hours|when is it open)
        (how many hours|how long) (a day|each day|per day) is the {p} open
        when is (the right|a good|a possible) time for {visiting} the {p}
        when {canwe} start {visiting} the {p} and until when
        (during which hours|between which hours) {canwe} {enter} the {p}
        (my|our) {kinone} would like to (know|hear) when the {p} is open
        the {p}{sep}{know} the {hourswords}
        what's the (timetable|schedule) (of|for|at) the {p}
        (is there|do you have) (a notice|a list|a sign|a plan) (with|of) the (hours|times|opening times) of the {p}
        {p} hrs
        {p} hrs (pls|please|thx)
        """,
    "day": """
        (i'm|i am|we are) going to the {p} on {d}, (when|how long) is it open
        the {p} on {d}, when is it open
        on {d}, (from when to when|how long|at what times) is the {p} open
        is the {p} (closed|shut) on {d} or (open|not)
        {d} {p}
        {p} open {d} when
        what are the {p} hours [on|for] {d}
        when could (i|we) come to the {p} on {d}
        when {is} the {p} open on {d}
        (what|which) are the (opening hours|opening times|hours) (of|for|at) the {p} on {d}
        (opening hours|opening times|hours) [of|for] [the] {p} [on] {d}
        {p} (opening hours|hours) [on] {d}
        {p} [on] {d}
        when can (i|we) (visit|go to|see) the {p} on {d}
        on {d} when {is} the {p} open
        how long is the {p} open on {d}
        from when to when is the {p} open on {d}
        (could|can|would) you tell me when the {p} is open on {d}
        i (would like|want|need) to know when the {p} is open on {d}
        we (would like|want|plan) to (visit|go to|see) the {p} on {d}, when is it open
        i am coming on {d}, when is the {p} open
        what time is the {p} open on {d}
        what time does the {p} open and close on {d}
        (tell|give) me the {d} (hours|opening hours|opening times) of the {p}
        {d} (hours|opening hours|times) (of|for|at) the {p}
        at what times can (i|we) visit the {p} on {d}
        do you know the (opening hours|hours|opening times) of the {p} on {d}
        what about the {p} on {d}
        is the {p} (closed|shut) on {d}
        * what hours is the {p} open on {d}
        * we are coming on {d}, what are the opening hours of the {p}
        * on {d}, what are the hours of the {p}
        * do you know when the {p} is open on {d}
        * tell me when the {p} is open on {d}
        * i plan to visit the {p} on {d}, when is it open
        (what are|how are) the (opening times|hours) at the {p} (on|for|this|next) {d}
        {d} we (are going|want to go|would like to go) to the {p}, when is it open
        when's the {p} open (on|this|next) {d}
        our (bus|train|flight) arrives on {d}, when can we (see|visit) the {p}
        (any idea|got any idea) when the {p} is open on {d}
        we have (time|a free day) on {d}, what are the hours of the {p}
        how long do we have at the {p} on {d}
        (planning|hoping) to (see|visit|do) the {p} (on|this|next) {d}, what are the hours
        between what times is the {p} open on {d}
        (this|next|coming) {d} at the {p}
        when can (i|we) (get into|come to|enter) the {p} (on|this|next) {d}
        what's the situation with the {p} on {d}
        (i|we) heard the {p} is closed on {d}, is that (true|right|correct)
        is the {p} (closed|shut) (this|next|coming) {d}
        {p} (closed|shut) [on] {d}
        the {p} isn't closed on {d}, (is it|right)
        what are the {d} hours (at|for|of) the {p}
        how many hours is the {p} open on {d}
        opening and closing times of the {p} on {d}
        when (can|could) (one|people|visitors) visit the {p} on {d}
        {p}, {d}, (opening hours|hours|times|when)
        {d}: {p} (hours|opening hours|opening times)
        (we'd|we would|i'd|i would) (love|like) to (see|visit) the {p} on {d}, (how long|from when to when|when) is it open
        (if|when) (i|we) come on {d}, when is the {p} open
        is the {p} open all day on {d}
        from what time until what time is the {p} open on {d}
        does the {p} have (longer|shorter|different|special|other) hours on {d}
        is the {p} open (longer|later) on {d}
        what time (should|can) (i|we) (come|go) to the {p} on {d}
        (can you|could you) check the {p} (hours|times) for {d}
        my (sister|friend|mother|cousin) (arrives|comes|visits us) on {d}, when is the {p} open
        is {d} a closing day (at|for) the {p}
        is the {p} open on {d} or is (that|it) (its|a|the) (day off|rest day)
        (i|we) can only (do|make|manage) {d}, what are the hours of the {p}
        the hours of the {p} on {d}, please
        is the {p} open for (breakfast|lunch|dinner|visits) on {d}
        {know} (when|from when to when|how long|at what times) the {p} is open {on_d}
        {wewant} {visit} the {p} {on_d}{comma}{dayask}
        {on_d}{sep}{wewant} {visit} the {p}, when is it open
        when {canwe} {enter} the {p} {on_d}
        the {p} {on_d}{sep}{hourswords}
        {on_d}{sep}the {p}{sep}{hourswords}
        {hourswords}{sep}the {p}, {d}
        the {p} {hourswords} {on_d}
        {heard} the {p} is (closed|shut) on {d}. (right|true|correct|is it)
        {know} (if|whether) the {p} is (closed|shut) {on_d}
        does the {p} (close|shut|take a break|have its day off|rest) on {d}
        if {comes} {on_d}, (when|from when to when|how long|what hours) is the {p} open
        (how long|between which hours|from when until when) {canwe} {enter} the {p} {on_d}
        would we stand before (closed|locked|shut) doors at the {p} {on_d}
        what are the times {on_d} (at|for) the {p}
        what's the {p} like for times {on_d}
        {p} hrs {d}
        {d} {p} hrs
        (i've|i have|we've|we have) (circled|marked|picked|ticked) {d} (in my calendar|in the diary|for it){comma}when is the {p} open
        the {p} {on_d}{sep}(what's possible|what are the times|between which times|when exactly)
        (between which times|from what time to what time) is the {p} open {on_d}
        """,
    "opens": """
        the {p} opens when on {d}
        on {d}, (how early|from when|at which hour) is the {p} open
        (at which hour|at which time) does the {p} open on {d}
        when do the doors of the {p} open on {d}
        (earliest|first) time to visit the {p} on {d}
        (when|what time|at what time) does the {p} open on {d}
        on {d} (when|at what time) does the {p} open
        (when|what time|at what time) does the {p} open [its doors] [in the morning] on {d}
        how early (does the {p} open|is the {p} open|can (i|we) visit the {p}) on {d}
        (can|could) you tell me (when|what time) the {p} opens on {d}
        i (want|would like|need) to know (when|at what time) the {p} opens on {d}
        from when is the {p} open on {d}
        {p} opening time [on] {d}
        from what time is the {p} open on {d}
        what is the opening time of the {p} on {d}
        how early can (i|we) go to the {p} on {d}
        * do you know what time the {p} opens on {d}
        * on {d}, what time does the {p} open
        * tell me when the {p} opens on {d}
        * how early can we get into the {p} on {d}
        when can (i|we) first (get into|enter) the {p} on {d}
        (how soon|how early) can (i|we) (come|get in|be let in) at the {p} on {d}
        we (like|want) to come early on {d}, when does the {p} open
        what time do the doors open at the {p} (on|this|next) {d}
        (since|from) what time (can i|can we) (visit|see) the {p} on {d}
        when does the {p} start on {d}
        what's the earliest (i|we) can (visit|enter|get into|be at) the {p} on {d}
        (opening time|start) of the {p} on {d}
        (when|at what time) will the {p} be open on {d}
        when does the {p} let (people|visitors|us) in on {d}
        (i am|we are|i'm|we're) (early birds|early risers), when does the {p} open on {d}
        does the {p} open early on {d}
        my (flight|train|bus) (lands|arrives|gets in) early on {d}, when can we (get|go) into the {p}
        what time on {d} does the {p} open
        how early (do they|do you) open the {p} on {d}
        when in the morning does the {p} open on {d}
        from (which|what) hour can (we|i) (visit|enter) the {p} on {d}
        is the {p} open early on {d}, when does it open
        (what's|what is) the earliest (moment|hour|point|time) {wecan} {enter} the {p} {on_d}
        {know} (when|how early|from when|at what hour) the {p} (opens|starts|lets people in|unlocks its doors) {on_d}
        {wewant} be (the first|first in line|early) at the {p} {on_d}{comma}when does it open
        (from when|from what time on|starting when|from which hour) {canwe} {enter} the {p} {on_d}
        the {p} {on_d}{sep}(opening time|from when|when does it open|opens when|how early)
        {on_d}, first thing, the {p}{sep}(from when|when does it open|opening time)
        when do (they|you|the staff) (unlock|open up|start work at|let us into) the {p} {on_d}
        (when|what time) (do|will) the doors of the {p} be unlocked {on_d}
        when at the earliest {canwe} {enter} the {p} {on_d}
        how soon after breakfast {canwe} {enter} the {p} {on_d}, when does it open
        when do they (unlock|open up|let people into) the {p} {on_d}
        what's the earliest (we|i|one) can (get into|see|be at) the {p} {on_d}
        how early can (i|we) (turn up|drag the family|show up) at the {p} {on_d}
        """,
    "closes": """
        the {p} closes when on {d}
        on {d}, (how late|until when|till when) is the {p} open
        (at which hour|at which time) does the {p} close on {d}
        when do the doors of the {p} close on {d}
        when do (i|we) have to leave the {p} on {d}
        (latest|last) time to visit the {p} on {d}
        (when|what time|at what time) does the {p} (close|shut) on {d}
        on {d} (when|at what time) does the {p} close
        (when|what time|at what time) does the {p} (close|shut) [its doors] [in the evening] on {d}
        how late (does the {p} stay open|is the {p} open|can (i|we) visit the {p}) on {d}
        (can|could) you tell me (when|what time) the {p} closes on {d}
        i (want|would like|need) to know (when|at what time) the {p} closes on {d}
        until when (is the {p} open|can (i|we) visit the {p}) on {d}
        {p} closing time [on] {d}
        until what time is the {p} open on {d}
        what is the closing time of the {p} on {d}
        till when is the {p} open on {d}
        * do you know what time the {p} closes on {d}
        * on {d}, what time does the {p} close
        * tell me when the {p} closes on {d}
        * how late can we go to the {p} on {d}
        * when is closing time at the {p} on {d}
        when do you (kick everyone out|lock up|shut) at the {p} on {d}
        how late can (i|we) (stay|be) (at|in) the {p} on {d}
        we (come|arrive) late on {d}, when does the {p} close
        (when|what time) (does|is) the {p} (over|finish|end|done) on {d}
        when must (i|we|everyone) (be out of|leave) the {p} on {d}
        how long can (i|we) stay (at|in) the {p} on {d}
        what time do the doors close at the {p} (on|this|next) {d}
        what's the latest (i|we) can (visit|enter|get into|be at) the {p} on {d}
        (by when|by what time) (must|should) (i|we) leave the {p} on {d}
        what time on {d} does the {p} (close|shut)
        closing time (of|for) the {p} on {d}
        does the {p} (close|shut) (early|late) on {d}
        how late will the {p} (be open|remain open|stay open) on {d}
        until when (do they|do you) keep the {p} open on {d}
        (we'd|we would|i'd) (love|like) to see the {p} (late|in the evening) on {d}, (until when|how late|till when) is it open
        when does the {p} (end|wrap up|finish for the day) on {d}
        (till|until) what (hour|time) can (i|we) (stay|remain) (in|at) the {p} on {d}
        when will the {p} (be closing|be shutting|close) on {d}
        on {d}, when do (we|i) have to be out of the {p}
        (what's|what is) the (latest|last) (moment|hour|time) {wecan} be in the {p} {on_d}
        when do (they|you|the guards) (throw|kick|send|chase|turf) {everyone} out of the {p} {on_d}
        {know} (when|how late|until when|by what time) the {p} (closes|shuts|locks up|is done) {on_d}
        (until when|till what time|how late) {canwe} (stay in|be in|remain in|hang around in|sit in) the {p} {on_d}
        the {p} {on_d}{sep}(closing time|until when|till when|closes when|when does it close|how late)
        {on_d}{sep}the {p}, (closing time|until when|closes when|when does it close)
        when (is it over|do the lights go out|does it all end|must the last visitor go) at the {p} {on_d}
        how (long|late) into the (evening|day|night) is the {p} open {on_d}
        {wewant} stay (late|long|to the end|until the last minute) at the {p} {on_d}{comma}when does it close
        by when (must|should|do) (we|i|the kids|all visitors) (leave|be out of|have left) the {p} {on_d}
        it's (our anniversary|my birthday|our last day) on {d}{comma}how late is the {p} open
        when do they (lock|lock up|shut|close up) the {p} {on_d}
        what's the latest (we|i|one) can (stay at|stay in|be in) the {p} {on_d}
        when (are we|do we get) (thrown out|kicked out|asked to leave) (of|from) the {p} {on_d}
        """,
    "is_open": """
        the {p} on {d}, is it open
        is {d} a day when the {p} is open
        [is] {p} open {d}
        (should|could) (i|we) come to the {p} on {d}
        is the {p} open on {d}
        on {d} is the {p} open
        (can|could|may) (i|we) (visit|see|go to) the {p} on {d}
        will the {p} be open on {d}
        does the {p} open on {d} or not
        is it possible to (visit|see|go to) the {p} on {d}
        do you know (if|whether) the {p} is open on {d}
        (could|can) you tell me (if|whether) the {p} is open on {d}
        i (want|would like) to (visit|see|go to) the {p} on {d}, is it open
        is the {p} open (for visitors|to visitors|to the public) on {d}
        i want to know (if|whether) the {p} is open on {d}
        the {p} is open on {d}, (right|isn't it|correct)
        * are you sure the {p} is open on {d}
        * tell me if the {p} is open on {d}
        * we want to see the {p} on {d}, will it be open
        on {d}, (can|could|may) (i|we) (visit|see|go to|get into) the {p}
        (i|we) (hope|think) the {p} is open on {d}
        (do|would) you (think|say) the {p} is open on {d}
        (i|we) would come on {d}, is the {p} open then
        can the {p} be visited on {d}
        * on {d}, is it possible to see the {p}
        * is it possible for us to go to the {p} on {d}
        is the {p} open (this|next|coming) {d}
        (any chance|is there any chance) (to see|of seeing) the {p} on {d}
        (does|will) the {p} work on {d}
        (can|could) (i|we) take (the kids|our kids|my family|my mother) to the {p} on {d}
        would (i|we) get into the {p} on {d}
        (we are|i am) only here on {d}, can (we|i) (see|visit) the {p}
        is {d} (ok|okay|fine|a good day) for (visiting|seeing|) the {p}
        is {p} open [on] {d}
        {p} [on] {d}, (open or closed|open or not|yes or no|open|possible)
        {d} {p} (open|possible|ok|yes or no)
        would it be possible to (visit|see|go to) the {p} on {d}
        (do you|does anyone) know if (we|i) can (visit|see) the {p} on {d}
        (are we|am i) able to (visit|see|get into) the {p} on {d}
        does the {p} (open its doors|welcome visitors|run|operate) on {d}
        is the {p} (running|in operation|operating|available) on {d}
        if (we come|i come|we visit|we turn up) on {d}, is the {p} open
        (is it|would it be) worth a trip to the {p} on {d}
        (we|i) (only have|just have) {d}, can (we|i) (see|visit) the {p}
        {d} works best for us, is the {p} open
        is {d} fine (for|to see) the {p}
        (surely|i guess|i suppose|i hope) the {p} is open on {d}
        (can|could) (the|our|my) (kids|children|boys|girls) (visit|see|go to) the {p} on {d}
        is the {p} an option on {d}
        can (one|people|you) (visit|see|go to) the {p} on {d}
        {canwe} {enter} the {p} {on_d}
        {on_d}{sep}{canwe} {enter} the {p}
        is the {p} (running|available|up and running|accepting visitors|a possibility|on|doable|going) {on_d}
        does {d} (work|suit|do|go) for the {p}
        would {d} (be any good|be alright|do|suit|be fine|be possible) for the {p}
        {d}{sep}{p}{sep}(open|possible|yes or no|doable|or closed)
        are they letting people into the {p} {on_d}
        will there be (anyone|somebody|staff|a person) at the {p} {on_d}
        (is there any|any) (point in|sense in|use in|chance of|hope of) {visiting} the {p} {on_d}
        {know} (if|whether) {wecan} {enter} the {p} {on_d}
        if {comes} {on_d}, (is|will|would) the {p} (be open|open)
        (is it|would it be) (worth it|worth the trip|sensible) {visiting} the {p} {on_d}, [i mean] is it open
        {wewant} {visit} the {p} {on_d}{comma}(is it open|is that possible|will it be open|does that work|can we)
        {on_d}, (will|would) the {p} be open (for us|to visitors|to the public|as usual)
        (can|could) {name} and {name} {enter} the {p} {on_d}
        is the {p} one of the places open {on_d}
        isn't the {p} open {on_d}
        (won't|will not) the {p} be open {on_d}
        the {p} is open {on_d}, (no|yes|am i right|i hope|or isn't it)
        (good|bad|right) day for the {p}{sep}{d}
        {d} and the {p}{sep}(possible|ok|a good idea|yes or no)
        does the {p} (take|have) {d} off
        does the {p} (do|work on|open on) {d}s
        (my {kinone}|my friend|someone) (insists|claims|thinks|says) (the {p} is|that the {p} is) (closed|shut) on {d}{comma}(is that right|is it true|is she right|who's right)
        is the {p} (something|an option|a possibility) for {d}
        """,
    "is_open_at": """
        (the|is the) {p} open {d} {t}
        at {t} on {d}, is the {p} [still|already] open
        on {d}, (can|could|may) (i|we) (visit|see|go to) the {p} at {t}
        is {t} on {d} a good time for the {p}
        (i|we) would come at {t} on {d}, is the {p} open then
        {p} {d} {t}
        is the {p} [still|already] open [on] {d} (at|around) {t}
        is the {p} [still|already] open at {t} on {d}
        on {d} is the {p} [still|already] open at {t}
        (can|could|may) (i|we) (visit|see|go to) the {p} [on] {d} at {t}
        (can|could|may) (i|we) (visit|see|go to) the {p} at {t} on {d}
        will the {p} be open at {t} on {d}
        i (want|would like) to (visit|see|go to) the {p} on {d} at {t}, is it open
        do you know (if|whether) the {p} is open at {t} on {d}
        we arrive at {t} on {d}, is the {p} [still] open
        is it possible to visit the {p} on {d} at {t}
        * if we come at {t} on {d}, is the {p} open
        * will the {p} still be open at {t} on {d}
        * tell me if the {p} is open on {d} at {t}
        * on {d} at {t}, is the {p} open
        is {t} on {d} ok for the {p}
        will (i|we) get into the {p} on {d} (at|around|by) {t}
        we could be at the {p} (at|by|around) {t} on {d}, is it (still|already) open
        our (bus|train) gets in at {t} on {d}, can we still (do|see|visit) the {p}
        can (i|we) still (get into|enter|go to|do) the {p} on {d} at {t}
        (would|does) {t} on {d} work for the {p}
        {d} {t} {p} open
        we will be there on {d} (at|around) {t}, is the {p} open
        {d} at {t}, can (i|we) (visit|see|enter|go to) the {p}
        is anyone (in|at) the {p} at {t} on {d}
        can (i|we) (still|already) (visit|see|go to|get into|do) the {p} (at|around) {t} on {d}
        would {t} on {d} be (ok|fine|alright|possible) (for|to visit|to see) the {p}
        (we|i) (will|would|could) (get to|reach|be at|arrive at) the {p} (at|around|by) {t} on {d}, is it open
        if (we|i) (turn up|show up|arrive) at the {p} (at|around) {t} on {d}, is it open
        {t} {d} {p} (ok|possible|open)
        {p} {d} {t} (ok|possible|open|yes or no)
        {p} {d} (at|around) {t}, (ok|possible|open|is that possible)
        does the {p} (still|already) let people in at {t} on {d}
        will (they|you) let us into the {p} on {d} at {t}
        is the {p} open (on|this|next) {d} (at|around) {t}
        can (i|we) be (at|in) the {p} at {t} on {d}
        we have time on {d} at {t}, is the {p} open then
        {d} (around|at about|at) {t} at the {p}, does that work
        is {d} {t} possible (for|at) the {p}
        would the {p} let (me|us) in (on|this) {d} at {t}
        {canwe} {enter} the {p} {at_dt}
        {at_dt}{sep}{canwe} {enter} the {p}
        is the {p} [still|already] (open|running|available|accepting visitors|letting people in) {at_dt}
        {at_dt}{sep}is the {p} [still|already] open
        {at_dt}{sep}the {p}{sep}(open|possible|yes or no|doable|ok|still open)
        the {p} {at_dt}{sep}(open|possible|yes or no|doable|ok|or closed|is it open)
        is {at_dt} (fine|ok|alright|possible|any good|feasible) for the {p}
        (would|does) {at_dt} (work|do|suit|be fine) for the {p}
        {know} (if|whether) the {p} is [still|already] open {at_dt}
        {know} (if|whether) {wecan} [still] {enter} the {p} {at_dt}
        {wewant} {visit} the {p} {at_dt}{comma}(is it open|is that possible|will it be open|does that work)
        if {comes} {at_dt}, (is|will|would) the {p} (be open|open|let us in)
        i {ends} at {t} on {d}{comma}(would|could|will|can) i still (make it into|get into|see|visit|go to) the {p}
        i {ends} at {t} on {d}{comma}is the {p} still open then
        (on {d} i {ends}|{d} i {ends}) at {t}{comma}(is the {p} open then|can i still see the {p}|will the {p} be open)
        {event} at {t} on {d}{comma}(is|will|would) the {p} (open|still open|be open) [then]
        {event} {at_dt}{comma}can we go (straight|directly|right away|) to the {p} [then]
        {event} {at_dt}{comma}will the {p} [still] let us in
        {plan}(, like|, around|, about|, say|. at) {t} on {d}(. |, )(is the {p} open|{p} still open|{p} open then)
        {plan} {at_dt}(. |, |? )(is the {p} open|{p} still open|{p} open then|will the {p} be open)
        (will|would) there be (anyone|somebody) at the {p} {at_dt}
        it (will|would) be {t} on {d} (before|when|by the time) we get (there|away){comma}is the {p} [still] open
        we (won't|can't) (be there|make it|get away) before {t} on {d}{comma}is the {p} still open [then]
        (can|could) {name} and {name} {enter} the {p} {at_dt}
        (is|would) {t} (be|) [already|] (possible|ok|open) at the {p} {on_d}
        {p} {d} {t}{sep}(yes or no|possible|feasible|doable|any chance)
        {t}, {d}, {p}{sep}(feasible|possible|doable|open|too late or not)
        (is|are) (the people at the|the staff of the|there people in the) {p} still there {at_dt}
        (imagine|picture|suppose) it's {t} on {d}{dot}is the {p} (still|) open
        """,
    "closed_days": """
        (i|we) want to know when the {p} is closed
        does the {p} (ever close|close on some days|open every day)
        days off {p}
        is the {p} always open
        (on which|which|what) days is the {p} closed
        (on which|on what) (day|days) is the {p} (closed|shut)
        when is the {p} closed
        is the {p} open (every day|daily|all week|seven days a week|each day)
        is the {p} ever closed
        which day is the {p} (closed|shut)
        does the {p} have a (closing day|rest day|day off)
        are there days when the {p} is closed
        closing days of the {p}
        closing day {p}
        on which days can (i|we) not visit the {p}
        * is the {p} closed on any day
        * can we visit the {p} every day
        * is there a day when the {p} is shut
        (which|what) day (should|must) (i|we) not come to the {p}
        when can't (i|we) (visit|see|go to) the {p}
        on (what|which) (days|day) can't (i|we) (visit|see|go to) the {p}
        (does|has) the {p} [have] a (weekly|) closing day
        is the {p} open all seven days
        what day is the {p} (off|not open)
        when is the {p} (not open|shut)
        does the {p} (close on any day|close on some days|close during the week|ever close)
        is the {p} open (7 days a week|on all days|all days|throughout the week)
        on what days (is the {p} shut|does the {p} close|is the {p} not open)
        (which|what) weekday is the {p} closed
        does the {p} have any (days off|closing days)
        is there (any|a) day the {p} (is closed|doesn't open|isn't open)
        which days (should|must) (i|we) avoid for the {p}
        the {p} is open (daily|every day), (right|isn't it|correct)
        what are the {p}'s (closing days|days off)
        is the {p} closed (some days|on some days|on certain days|during the week)
        (does|will) the {p} (take|have) (a day off|any day off|a rest day|a break) [in the week|every week]
        is there a day (on which|when) {wecan} not {enter} the {p}
        which day [of the week] (is bad|is no good|is useless|won't work|should we skip|must we skip) for the {p}
        {know} (on which days|when|on what day) the {p} (is closed|is shut|doesn't open|stays closed)
        on which days would we (find|see) the {p} (closed|shut|locked)
        the {p}{sep}(closing days|days off|closed when|closed on which days|which days is it shut)
        {wewant} {visit} the {p}{comma}(on which days is it closed|is it open every day|which day is it shut)
        (can|could) we pick any day for the {p}
        (is|are) (all days|all seven days|every day|any day) (fine|ok|possible|good) for the {p}
        """,
    "weekend": """
        (i am|we are) here (at|on|for) the weekend, when is the {p} open
        (this|next) weekend at the {p}
        the {p} (at|on) the weekend
        weekend at the {p}
        is the {p} open (at|on) the weekend
        when is the {p} open (at|on) (the weekend|weekends)
        (what are|tell me) the weekend (hours|opening hours|opening times) of the {p}
        {p} [on] weekend
        {p} on saturday and sunday
        weekend (opening hours|hours|times) [of|for|at] [the] {p}
        when is the {p} open on saturday and sunday
        can (i|we) (visit|go to|see) the {p} (at|on) the weekend
        i (want|would like) to visit the {p} on the weekend, when is it open
        when does the {p} (open|close) (at|on) the weekend
        * what are the opening times of the {p} at the weekend
        * on the weekend, when is the {p} open
        * will the {p} be open on saturday and sunday
        (we are coming|we come|i come) (at|on|for|over) the weekend, (is|when is) the {p} open
        (what about|how about) the {p} (at|on|over) the weekend
        {p} (sat and sun|saturday or sunday|sat sun)
        is the {p} open on (saturday and sunday|saturdays and sundays|both saturday and sunday)
        weekend visit to the {p}, when is it open
        (when|what time) can (i|we) (visit|see) the {p} over the weekend
        {p} (this|next) weekend
        is the {p} open (this|next) weekend
        will the {p} be open (this weekend|next weekend|over the weekend|at the weekend)
        hours of the {p} (for|on|over) the weekend
        what hours does the {p} have (on weekends|at the weekend)
        can (i|we) (visit|see|do) the {p} (this|next) weekend
        saturday and sunday at the {p}[, when|, what hours]
        the {p} on sat and sun, when
        on (weekends|the weekend), how long is the {p} open
        {wewant} {visit} the {p} (at the|on the|this|next) weekend{comma}(when is it open|what hours|is it open)
        (sat|saturday) (and|&|/|+|or) (sun|sunday) {hourswords} (of|for|at) [the] {p}
        the {p} (at|on|over) (the weekend|weekends){sep}{hourswords}
        weekend{sep}the {p}{sep}(when|open|hours|from when to when)
        {know} (when|how long|from when to when) the {p} is open (at|on|over) the weekend
        when {canwe} {enter} the {p} (at|over) the weekend
        which hours does the {p} (have|offer) (on weekends|at the weekend|for the weekend)
        """,
    "today": """
        is it (monday|sunday|friday|saturday) today
        when does the {p} open next
        is the {p} open (this morning|this afternoon|later)
        is the {p} open (today|now|right now|tomorrow|tonight|this evening|at the moment)
        when (does|is) the {p} (open|close) (today|tomorrow|tonight)
        (when|until when) is the {p} open (today|tomorrow|tonight)
        {p} (today|tomorrow|now)
        what time does the {p} (open|close) (today|tomorrow|tonight)
        can (i|we) (visit|see|go to) the {p} (today|now|tomorrow|right now)
        how late is the {p} open (today|tonight)
        opening hours of the {p} (today|tomorrow)
        what (day|date) is (it|today)
        what day is it today
        what is (the date|today's date)
        which day is today
        * are the opening hours of the {p} different today
        * can you tell me if the {p} is open today
        * will the {p} be open tomorrow
        (what is|what's|is anything|which places are) open (today|now|right now|tomorrow|tonight|at the moment)
        (what is|what's) still open [now|tonight]
        (we|i) want to (see|visit|go to) the {p} (tomorrow|today|tonight), (when is it open|is it open|is that possible)
        are you open (today|tomorrow|now|tonight)
        {p} open (today|tomorrow|now|tonight)
        what are the hours of the {p} (today|tomorrow)
        how long is the {p} [still] open (today|tonight|tomorrow)
        what (can we visit|can we see|can i do|is there to see) (today|tomorrow|tonight|right now)
        when does the {p} (open|close) (later today|later|in the morning tomorrow)
        is the {p} (currently|still|already) open
        is the {p} open (just now|at this moment|at this hour|this evening|later on|in an hour)
        (what|which) (places|attractions) are [still] open (today|now|tonight|tomorrow|right now)
        what can (we|i) (see|do|visit) (this evening|this afternoon|later today|now|tomorrow)
        is the park [still] open (today|now|tomorrow)
        are you [still|already] open (now|tonight|today|tomorrow)
        what time do you (open|close) (today|tomorrow|tonight)
        anything open (today|tonight|now|tomorrow)
        (when|until when) are you open (today|tonight|tomorrow)
        (today|tomorrow) at the {p}, (when is it open|when does it open|is it open)
        (can|could) we go to the {p} (this evening|this afternoon|tomorrow morning|tomorrow afternoon)
        (will|can) (we|i) still (catch|make|get into) the {p} (today|tonight|this evening)
        (is it too late|is there still time|do we still have time) for the {p} (today|tonight|now|this evening)
        {wewant} {visit} the {p} (today|tomorrow|right now|tonight){comma}(is it open|when is it open|is that possible)
        {canwe} {enter} the {p} (today|tomorrow|right now|tonight|this afternoon)
        the {p} (today|tomorrow|tonight){sep}{hourswords}
        {know} (if|whether) the {p} is open (today|tomorrow|tonight|now)
        is (anybody|anyone|somebody) (in|at) the {p} (now|at the moment|at this hour|this evening)
        is there (anything|something) going on (in|at) the {p} (now|right now|at the moment|tonight)
        is there (still|) (somebody|light|life) (in|at) the {p} (now|tonight|at this hour)
        """,
    "open_on": """
        (is anything|is something) open on {d}
        (i am|we are) coming on {d}, what (is open|can we see)
        for {d}, what is open
        what (attractions|places) can (i|we) visit on {d}
        tell me what (i|we) can (see|do) on {d}
        what is open on {d}
        (which|what) (places|attractions|buildings) are open on {d}
        what can (i|we) (visit|see|do) [here|in the park] on {d}
        i am here on {d}, what (is open|can i visit|can i see)
        what's open [on] {d}
        where can (i|we) go on {d}
        on {d} what is open
        everything open on {d}
        list (the places|everything|all) open on {d}
        (could|can) you tell me what is open on {d}
        * tell me what is open on {d}
        * which places can we visit on {d}
        * we are here on {d}, what is open
        what can (we|i) (do|see|visit) on a {d}
        (we are|i am|we're) (only here|here|in town|coming) on {d}, what can (we|i) (do|see|visit)
        what (is|'s) there to (do|see) on {d}
        which (attractions|places|things) (can be visited|are open|have opened) on {d}
        {d}, what is open
        what (do you have|have you got) open on {d}
        what all is open [on] {d}
        where could (we|i) go on {d}
        which of your (attractions|places) are open on {d}
        if (we|i) come on {d}, what (can we see|is open|can we do)
        (list|name) the (places|attractions) that are open on {d}
        (i'm|we're) (free|off) on {d}, what can (i|we) (visit|see)
        (we|i) (only|just) have {d}, what is open
        {d} (visit|trip), what's open
        on {d}, which (attractions|places) (could|can) (we|i) (visit|see|go to)
        what does the park (offer|have) on {d}
        what (would|will) be open on {d}
        what is (there to visit|worth a visit|possible) on {d}
        it will be {d} when (we|i) come, what (is open|can we see)
        what (could|can|might) (we|one|a family|visitors|my guests|i) (look at|see|visit|do|explore|tour) {on_d}
        what's (on offer|possible|available|accessible|running|to see) {on_d}
        which (doors|places|things|sights|attractions) are open {on_d}
        {know} (what|which places|which attractions|what all) (is|are) open {on_d}
        {on_d}{sep}(what|which places|which sights) {canwe} (see|visit|look at|go to)
        if {comes} {on_d}, what (is open|can we see|could we look at|is there for us)
        {d} is all we have(, | - |. |: )what (could|can|should) we (see|visit|do|look round)
        {d} it is(, | - |. |: )(what is open|which places can we see|what could we visit)
        where {canwe} go {on_d}
        {wewant} come {on_d}{comma}what (is open|can we see|can we visit)
        open {on_d}{sep}(what|which places)
        (which|what) (spots|places|sights|doors) (will|would) (let us in|receive us|have us|be open to us) {on_d}
        (what|which places) (have|has) (its|their) doors open {on_d}
        where would we be (welcome|let in) {on_d}
        what (have|do) you (got|have) (for us|going|to offer) {on_d}
        is there (anything|something) for us {on_d}
        {on_d}{sep}what is there (for us|to see|to visit|to do)
        """,
    "way": """
        (i|we) want to (see|visit|find) the {p}, where is it
        where's the {p}
        where (must|should|shall) (i|we) go for the {p}
        the {p}, where is it
        the {p}, how do i get there
        is there (an|any) {p} (here|nearby|around here|in the park|somewhere)
        is there (a|an|any) {p}
        (point|send|direct) me to the {p}
        (i|we) got lost, where is the {p}
        how (should|must) (i|we) walk to the {p}
        (i am|we are) trying to find the {p}
        nearest {p}
        where is the (nearest|next) {p}
        where {is} the {p}
        how do (i|we) get to the {p}
        how (can|could) (i|we) (get to|reach|find|go to) the {p}
        [the] way to the {p}
        directions to the {p}
        which way (is|to) the {p}
        (i am|i'm|we are|we're) looking for the {p}
        (could|can|would) you (tell|show) me (the way|how to get|how to go) to the {p}
        where (can|do) (i|we) find the {p}
        i (need|want|would like) to (go|get) to the {p}
        (take|bring|guide|lead) me to the {p}
        where (are|is) [the] {p}
        how to (get to|reach|find) the {p}
        what is the (best|fastest|quickest|shortest) way to the {p}
        show me the way to the {p}
        do you know where the {p} {is}
        is there a {p} (here|nearby|around here|in the park)
        {p} where
        in which direction is the {p}
        i can't find the {p}
        i (need|want) the {p}
        where would i find the {p}
        (please give me|give me) directions to the {p}
        tell me (the way|how to get) to the {p}
        which path (goes|leads) to the {p}
        * (can|could) you tell me where the {p} {is}
        * i don't know how to get to the {p}
        * how would we get to the {p}
        * which is the way to the {p}
        * please show me where the {p} {is}
        * we need directions to the {p}
        where (abouts is|exactly is|about is) the {p}
        (i|we) (really need|urgently need|need to find) the {p}
        which (direction|way) (do i|do we|should i|should we) (go|walk) (for|to) the {p}
        (we|i) want to go to the {p} [now], (which way|how do i get there|how do we get there|where do i go)
        (can't|cannot) find the {p} (anywhere|), (where is it|can you help)
        is the {p} (left or right|north or south|this way|around here|somewhere here)
        how do (i|we) (walk|get|go) to the {p} from (here|this kiosk|where i am)
        from here to the {p}
        what's the (way|best way|quickest way) to the {p}
        (my son|my daughter|my mother|my kid|the little one) needs the {p}[, where is it]
        (point me|which path|what path) to the {p}
        which path do (i|we) (take|need|follow) (to|for) the {p}
        closest {p}
        {p} (directions|location|way|route)
        where would the {p} be
        how would (i|we) find the {p}
        (got|have you got|do you have) (a|any) {p}
        (any idea|do you have any idea|got any idea) where the {p} {is}
        (i'm|we're) heading to the {p}, which way
        which path (takes|gets|brings) (me|us) to the {p}
        how do you get to the {p}
        what's the (route|path|direction) to the {p}
        (could|can) you (direct|point|guide|send) (me|us) to the {p}
        where (on earth|in the world|in the park) is the {p}
        where (have you hidden|did they put|have they put) the {p}
        (i'm|we're) lost, (where is|how do i get to|which way to) the {p}
        (i|we) (must|have to|need to) (get|go) to the {p} [quickly|fast|now|urgently]
        can you help (me|us) find the {p}
        (someone|they|a man|my guide book) (said|says|mentioned) there is a {p} here, where (is it|can i find it)
        how does one get to the {p}
        where is the {p} (located|situated)
        the way to the {p}, please
        what's the location of the {p}
        tell (me|us) how to (find|reach|get to) the {p}
        where is the {p} and how far is it
        how do (i|we) get to the {p} and how long does it take
        (where's|where is) the {p} and how long (is the walk|do we walk|does it take)
        which (path|way) goes to the {p} and how far is it
        how do (i|we) find the {p} and is it far
        where is the {p}, is it far
        (is the {p} near here|is the {p} close by) and how do (i|we) get there
        (any|is there any) {p} (near|close to) (here|us)
        towards the {p}, please
        is there a {p} (here|nearby|in the park) and (where|how far) is it
        do you have a {p} and where
        {person} (needs|is looking for|has to get to|is asking for|wants|must find|can't find) the {p}{sep}{where}
        i (can't|cannot) (see|spot|find|make out) the {p} (anywhere|from here|on the map|){comma}{where}
        {know} (where the {p} {is}|how to get to the {p}|the way to the {p}|which path goes to the {p})
        the {p}{sep}{where}
        {where}{sep}the {p}
        {wewant} {visit} the {p}{comma}{where}
        we (need|must find|are looking for|are after|have been searching for) the {p}{sep}{where}
        (where|which way) (should|must|do) {person} (go|walk) (for|to reach) the {p}
        (i'm|we're|i am|we are) (off to|on my way to|heading for|going to|trying to reach) the {p}{sep}{where}
        (we have|i've|we) (walked past|missed|not found) the {p}, (where is it|it seems{comma}where is it)
        we were told to (go to|meet at|wait at|look for) the {p}{sep}{where}
        (our|my) (group|friends|family) (is|are) (meeting|waiting) at the {p}{sep}{where}
        how (would|does|might) (one|a stranger|a visitor|somebody new here) (get to|find|reach) the {p}
        (quick|urgent|please), {where}{sep}the {p}
        take (us|me|my friend) to the {p}
        (which|what) (way|direction|path) {canwe} (take|choose|walk) (to|for) the {p}
        how come (i|we) can't find the {p}{comma}{where}
        (my|our) map (has no|doesn't show the|is too small for the) {p}{comma}{where}
        on (which|what) side (of the park|of the fountain) (is|lies|do we find) the {p}
        (in|) (which|what) direction (from|of) the fountain (is|lies|do i find) the {p}
        (north, south, east or west|which compass direction|which colour of path){sep}the {p}
        {p}{sep}(anyone|anybody|anywhere|quick)
        (quick|quickly|urgent|hurry){sep}the {p}
        (any|got any|a) {p} (around|close by|near here|in sight)
        where (did|do) they (hide|keep) the {p}
        {person} (needs|is looking for|must find) the {p} (urgently|quickly|at once){sep}{where}
        """,
    "distance": """
        how far to the {p}
        the {p}, how far is it
        (can|could) (i|we) walk to the {p}[, how far is it]
        how (near|close) is the {p}
        what is the distance to the {p}
        how long to the {p}
        how far is [it to] the {p}
        how far (away|off) is the {p} [from here]
        how long does it take to (get to|reach|walk to) the {p}
        how long is the (walk|way) to the {p}
        is the {p} far
        how many minutes [is it] to the {p}
        distance to [the] {p}
        is the {p} (far|close|near) [from here|away]
        how much time do (i|we) need to (get to|reach|walk to) the {p}
        how many minutes (does it take|do i need) to walk to the {p}
        is it (far|a long walk|a long way) to the {p}
        * how long do we walk to the {p}
        is it a (long|short) (way|walk) from here to the {p}
        (i can not walk well|i am tired|we have little time), how far is the {p}
        how much (longer|further) is it to the {p}
        how (many steps|many metres|long) to the {p}
        * is it a long way to walk to the {p}
        * how much time does it take to get to the {p}
        * how many minutes is the walk to the {p}
        (how long|how many minutes) (will it take|does it take|would it take) [us|me|to walk|to go] to the {p}
        how long (until|till) (we|i) (are at|reach|get to) the {p}
        (is|are) the {p} within walking distance
        (my feet hurt|my legs hurt|i am with my old mother|we are in a hurry), (how far is|is it far to) the {p}
        what's the walking time to the {p}
        how long do (i|we) need to the {p}
        {p} how far
        how far would (i|we) (walk|have to walk) to the {p}
        (walking time|time) to the {p}
        how far is it from here to the {p}
        is the {p} (nearby|close by|around the corner|a long walk|a long way|a long hike|far off|far away)
        how long (on foot|by foot) to the {p}
        how long do (i|we) have to walk to (get to|reach|see) the {p}
        how many minutes (on foot|by foot|walking) to the {p}
        how far away from (here|us|this kiosk) is the {p}
        (we are with my old mother|i have a small child with me|my knee hurts), how long is the walk to the {p}
        do (i|we) have to walk (far|long) to the {p}
        (can|could) (we|i) (make it|get) to the {p} in (5|10|15|ten|five) minutes
        how quickly can (i|we) (get to|reach|be at) the {p}
        what's the distance from here to the {p}
        (roughly|about) how (far is it|long is the walk) to the {p}
        how many minutes away is the {p}
        is it (far|long) to the {p}
        (could|can|would|will) {walker} (manage|cope with|survive) (the walk|the way) to the {p}(? |. |, ){howfar}
        (could|can|would|will) {walker} (manage|make|cope with) the (walk|way) to the {p}
        is the {p} too far for {walker}
        {howfar} to the {p}
        the {p}{sep}{howfar}
        {wewant} {visit} the {p}{comma}(how far is it|is it far|how many minutes is it|how long is the walk)
        {know} how (far|long|many minutes) (it is|the walk is|we walk|one walks) to the {p}
        how (long|many minutes) would {walker} need to the {p}
        we have (ten minutes|a quarter of an hour|little time|half an hour){comma}how long is the walk to the {p}
        {person} doesn't like walking{comma}{howfar} to the {p}
        (is it|will it be) a (short|long|quick|big|good) (walk|stroll|march|hike|trek) to the {p}
        how many (km|kilometres|kilometers|miles|metres|meters|yards|steps) to the {p}
        how many (km|kilometres|metres|meters|miles|yards) (away|off|from here) is the {p}
        what's the distance in (minutes|metres|meters|km|kilometres) to the {p}
        the {p}{sep}(walking time|distance|minutes|how many metres|how many minutes)
        (from here|from this kiosk|from where we are) to the {p}{sep}{howfar}
        how far (must|should|have) (we|i) [to] walk (for|to see) the {p}
        can (we|i) be at the {p} in (3|5|8|10|15|20) minutes
        is (5|10|15|ten|fifteen|twenty) minutes enough (to get to|to reach|for the walk to) the {p}
        (the distance|distance|how far is it|the walk) between (here|you|this kiosk|the kiosk) and the {p}
        how far (are you|are we|is this kiosk|is the kiosk) from the {p}
        how far is the (nearest|closest|next) {p}
        {howfar} to the (nearest|closest|next) {p}
        {howfar} to the {p} (if i walk slowly|at a slow pace|with a pram|with two small kids|for an old lady)
        """,
    "return": """
        (how far|how long|how many minutes) is (it|the walk) to the {p} and back
        how long (does it take|do we need|will we need) (to walk|) to the {p} and back
        to the {p} and back{sep}{howfar}
        (a walk|the walk|walking) to the {p} and back{sep}(how long|how many minutes|{howfar})
        (there and back|both ways|return trip){comma}how (long|many minutes|far) is (it to |)the {p}
        how many minutes to the {p} and back (here|to the kiosk|to you)
        the {p} and back (here|to the kiosk|to you){sep}{howfar}
        {howfar} to the {p} and (back|back again|back here)
        can we (walk to|get to) the {p} and back in (10|15|20|30|ten|twenty) minutes
        """,
    "route": """
        how do (i|we) get from the {o} to the {p}
        how (can|could) (i|we) (get|go|walk) from the {o} to the {p}
        [the|what is the] way from the {o} to the {p}
        directions from [the] {o} to [the] {p}
        from the {o} to the {p}
        {o} to {p}
        i am (at|near|in) the {o}, (how do i get to|where is|which way to) the {p}
        i (want|need|would like) to (go|walk|get) from the {o} to the {p}
        how far is it from the {o} to the {p}
        how long (does it take|is the walk|is the way) from the {o} to the {p}
        we are (at|in) the {o} and (want|need|would like) to go to the {p}
        which way is it from the {o} to the {p}
        (could|can) you tell me (the way|how to get) from the {o} to the {p}
        how do (i|we) get to the {p} from the {o}
        (show|tell) me the way to the {p} from the {o}
        where is the {p} from the {o}
        [and] how do (i|we) get from the {o} to the {p}
        (i am|i'm|we are|we're) at the {o}, how far is the {p}
        * i'm standing at the {o}, which way is the {p}
        * what is the best way from the {o} to the {p}
        * how many minutes is it from the {o} to the {p}
        (i am|i'm|we are|we're) at the {o} and (i'm|i am|we are|we're) looking for the {p}
        (i am|i'm|we are|we're) [now] (at|in|near|by) the {o}, how (far|long) is it to the {p}
        (i am|i'm|we are|we're) [now] (at|in|near|by) the {o} and (need|have|want|would like) to (get|go|walk) to the {p}
        (i am|i'm|we are|we're) coming from the {o}, (where is|which way is|how do i find|how do we reach) the {p}
        how many minutes (from|is the walk from) the {o} to the {p}
        first the {o}, then the {p}, (how do i walk|which way is it|how far is it)
        between the {o} and the {p}, how long do i walk
        * starting at the {o}, how do i get to the {p}
        after the {o} (we|i) (want|need|would like) to (go to|see|visit) the {p}, (which way is it|how do i get there|where is it)
        * we just left the {o} and want to walk to the {p}
        (we|i) just (saw|visited|finished) the {o} and now (want|need|would like) to go to the {p}
        (which way|which path) (from|after) the {o} to the {p}
        from the {o}, (how do i|how do we|how can i|how can we) (get|go|walk) to the {p}
        from the {o}, where is the {p}
        (walking|going|getting) from the {o} to the {p}[, which way|, how far is it|, how long]
        what's the (way|route|quickest way) from the {o} to the {p}
        (i am|i'm|we are|we're) (standing at|outside|next to|in front of) the {o}, (how do i get to|how do we get to|where is) the {p}
        is it far from the {o} to the {p}
        how far (apart are|is it between) the {o} and the {p}
        (if|when) (i am|we are) at the {o}, how do (i|we) get to the {p}
        (parked at|got off at|now at) the {o}, (need to get to|want to go to|where is) the {p}
        how far is the {p} from the {o}
        from the {o} back to the {p}[, how do we go|, which way do we take]
        (the way|how do i get|how do we get) back (from the {o} to the {p}|to the {p} from the {o})
        (i|we) (want|need|have) to (get|go|walk) back from the {o} to the {p}
        how do (i|we) get back to the {p} from the {o}
        (we are|i am|i'm|we're) (at|in) the {o}, how do (i|we) get back to the {p}
        from the {o} (over|on|across) to the {p}
        from the {o} to the {p}, (which path|which way) and how far
        from the {o} to the {p}, (which way is it and how long does it take|how do we walk and how long)
        how do (i|we) get from the {o} to the {p} and how long does it take
        (coming|walking|heading) out of the {o}, (how do i find|where do i find|which way is) the {p}
        when (we|i) (leave|come out of|are done with) the {o}, (how do we get to|which way is) the {p}
        (we're|i'm|we are|i am) (done|finished) (at|with) the {o}, (how do we get to|which way is|how far is) the {p}
        what's the walk from the {o} to the {p}
        (which path|which way) do (i|we) take at the {o} to (get to|reach) the {p}
        how long do (i|we) (walk|need) from the {o} to the {p}
        starting from the {o}, (where is|which way is|how far is) the {p}
        (get|take|bring) (me|us) from the {o} to the {p}
        (i'm|we're) at the {o} right now. (where's|where is|how do i get to|how far is) the {p}
        (we|i) (are|will be) at the {o} and (my|our) (kids|wife|son|friends) (want|wants) to go to the {p}, which way
        (is there|are there) (any|a) {p} near the {o}
        (nearest|closest) {p} (to|from) the {o}
        what's the (nearest|closest) {p} if (i'm|we're) at the {o}
        (we're|i'm|we are) near the {o}, is there a {p} close by
        {at_o}{comma}how (do|can|could|would) (we|i) (get|walk|go) to the {p} [from there|from here]
        {at_o}{comma}(where is|which way is|what's the way to|how far is) the {p} [from there|from here]
        {at_o} and (want|need|would like|have to get to|fancy|are off to) the {p} (first|next|now|){comma}{where}
        {at_o} and want the {p} (first|next|now|){comma}{howfar} [from there]
        {at_o}. (next|then|now|after that|afterwards) (comes|is|it's|we want|we fancy) the {p}{comma}{where}
        {at_o}{comma}(directions|route|way|path) to the {p}
        after (the {o}|lunch at the {o}|our time at the {o}) (we|i) (fancy|want|go to) the {p}{comma}{where}
        {o}{sep}{p}{sep}(which way|how far|how long|directions|route|how do we walk)
        (starting|departing|coming|setting off) (at|from) the {o}, {howfar} to the {p}
        to the {p} from the {o}{sep}{howfar}
        {know} (the way|how to get|how to walk) from the {o} to the {p}
        {know} how (far|long|many minutes) it is from the {o} to the {p}
        {person} (is|waits) (at|by) the {o} and (needs|wants) to (get|go|walk) to the {p}{comma}(which way|how far)
        (say|suppose|imagine) (we're|i'm|you are) at the {o}. {howfar} to the {p}
        {walker} has to (get|go|walk) from the {o} to the {p}{comma}{howfar}
        how do (we|i) (return|go back|walk back|get back) to the {p} (from|when we are at) the {o}
        is it (far|long|a long walk|many minutes) (from|between) the {o} (to|and) the {p}
        (walking time|distance|the distance|the walk) (from the {o} to the {p}|between the {o} and the {p})
        how many (metres|meters|km|kilometres|steps|yards) (from|are there from) the {o} to the {p}
        how (far|long) from the {o} to the {p}
        (what|how big) is the distance (between the {o} and the {p}|from the {o} to the {p})
        {o} to {p}{sep}(how far|how many minutes|how long|distance|walking time|on foot)
        can (we|i) get from the {o} to the {p} in (3|5|8|10|15|20) minutes
        is it far between the {o} and the {p}
        how long (are|would) we (walking|walk) from the {o} to the {p}
        how far is the {p} (when|if) (we are|i am) at the {o}
        """,
    "to_kiosk": """
        (how far|how long|how many minutes) is (it|the walk) from the {p} (to here|to this kiosk|to you|to the kiosk|back here)
        how (do|can) (i|we) get from the {p} (to here|to this kiosk|to you|to the kiosk|back here)
        (the way|the route|way|directions|distance|walking time) from the {p} to (here|this kiosk|you|the kiosk)
        from the {p} to (here|this kiosk|you|the kiosk){sep}{howfar}
        (we're|i'm|we are|my {kinone} is|our friends are) at the {p}{comma}(how do we get|what's the way|which way is it) to (you|the kiosk|your kiosk)
        how long (does it take|do we need|will we need) from the {p} to (you|the kiosk|here)
        where is the kiosk [if we come] from the {p}
        (we|our friends) come from the {p}{comma}how far is (it to the kiosk|it to you|the kiosk)
        {howfar} from the {p} (to here|to the kiosk|to you)
        """,
    "to_fountain": """
        (how far|how long|how many minutes) is (it|the walk) from the {p} to the fountain
        how (do|can) (i|we) get from the {p} to the fountain
        (the way|the route|way|directions|distance|walking time) from the {p} to the fountain
        from the {p} to the fountain{sep}{howfar}
        (we're|i'm|we are) at the {p}{comma}(how do we get|what's the way|which way is it|how far is it) to the fountain
        how far is the fountain from the {p}
        {howfar} from the {p} to the fountain
        the fountain from the {p}{sep}{where}
        """,
    "prices": """
        the {p}, how much is it
        the {p}, what does it cost
        what (will|would) (i|we|it) (pay|cost) (at|for) the {p}
        entry {p}
        how much to (visit|see|enter) the {p}
        cost of {p}
        (give|show) me the prices (of|for) the {p}
        how much should (i|we) pay for the {p}
        how much (is|are|does|do) the {p} [cost]
        what does the {p} cost
        what are the (prices|ticket prices|entry fees) (of|for|at) the {p}
        (price|prices|tickets|cost|entry fee|entrance fee|ticket prices) [of|for] [the] {p}
        {p} (price|prices|tickets|cost|ticket price|entry fee)
        how much (is|are) (a ticket|tickets|entry|the entry|the entrance|admission) (to|for|at) the {p}
        how expensive is the {p}
        what do (i|we) (have to|need to) pay (at|for) the {p}
        (is|are) the {p} (free|expensive|cheap)
        do (i|we) (have to|need to) pay (at|for|to visit|to enter) the {p}
        do (i|we) need a ticket (for|to visit|to enter) the {p}
        i (would like|want|need) (a ticket|tickets) (for|to) the {p}
        what is the (price|cost|entry fee|entrance fee|admission) (for|of|at) the {p}
        (could|can) you tell me (the prices|what the price is|how much it costs) (for|at) the {p}
        how much (money|do i pay|do we pay|would i pay) (for|at) the {p}
        is there (an entry fee|an entrance fee|a fee) (for|at) the {p}
        how much does it cost to (visit|enter|see|get into) the {p}
        what does it cost to (visit|enter|see|get into) the {p}
        what do tickets (for|to) the {p} cost
        tell me the (prices|ticket prices) of the {p}
        is entry to the {p} free
        * what is the cost of a ticket to the {p}
        * can you tell me what the {p} costs
        * how much money is a ticket for the {p}
        * must we pay to see the {p}
        * what are tickets for the {p}
        * we would like to see the {p}, how much is it
        what do you (charge|want|take) for the {p}
        (what's|whats) the (price|entry|entrance|damage) (at|for) the {p}
        how much is (it|entry) (to get into|to go into|into) the {p}
        how much would the {p} (be|cost|set us back|set me back)
        (what are|tell me) the (rates|fees) (at|for) the {p}
        is it (expensive|pricey|free) to (visit|see|get into|go to) the {p}
        is (the|) {p} entry free
        how much do (you|they) charge (at|for) the {p}
        (we|i) want to (do|see|visit) the {p}, what does it cost
        does the {p} cost (anything|something|a lot|much)
        cost to get into the {p}
        (any idea|got any idea) what the {p} costs
        must (i|we) (pay|buy a ticket) (for|at) the {p}
        must (we|i|visitors) pay to (get into|enter|go into|visit) the {p}
        must (we|i|one) pay anything (for|at) the {p}
        (do|must) (i|we) (buy|get) tickets for the {p}
        is the {p} (for free|free of charge|free to enter|free to visit)
        is there a (charge|cost) (for|at) the {p}
        does it cost (anything|something|money) to (visit|enter|see) the {p}
        what's the (admission|ticket price|entrance fee|entry price) (for|at|to) the {p}
        how much are {p} tickets
        what do {p} tickets cost
        price of {p} tickets
        (tickets|prices|fees) at the {p}
        what (will|would|does) a visit to the {p} cost
        what is the {p} (going to cost|gonna cost) [me|us]
        how much do tickets for the {p} cost
        (do they|do you) (charge|take money|want money) for the {p}
        is (paying|payment) (required|needed|necessary) (at|for) the {p}
        how much (do i|do we|would i) have to pay (to see|to visit|to enter|for) the {p}
        (any|is there any) (entry fee|entrance fee) at the {p}
        what's it cost to (see|visit|get into) the {p}
        how much is the {p} (per person|per head|for one person|each)
        what does the {p} cost (per person|per head|for one person|each)
        price per (person|head) (at|for) the {p}
        {wewant} {visit} the {p}{comma}(what does it cost|how much is it|what are the prices|how much are tickets)
        the {p}{sep}(how much|price|prices|cost|entry fee|what's the damage|fees|what do tickets cost|ticket prices)
        (how much|what price|what cost|entry fee|admission|fees|ticket prices|price list){sep}the {p}
        {know} (what|how much) (the {p} costs|tickets for the {p} cost|entry to the {p} is|one pays at the {p})
        {know} (the price|the prices|the entry fee|the ticket prices) (of|at|for) the {p}
        is there (anything|something|money) to pay at the (door of the {p}|{p} door|{p}|entrance of the {p})
        do they (want|take|charge|ask for) (money|an entry fee|a fee|anything) at the {p}
        what (would|will|does) {visiting} the {p} (cost|set us back|mean for my wallet|come to per person)
        how (deep|far) (do we|must i) (dig|reach) into (our|my) (pocket|wallet) for the {p}
        (is|would) the {p} (be|) (within a small budget|affordable|costly|dear), what (is|are) the (price|prices)
        {canwe} {enter} the {p} (without paying|for free|without a ticket|for nothing|free of charge)
        """,
    "price": """
        for {c}, (how much is|what does) the {p} [cost]
        the {p} for {c}, how much
        (i am|i'm) {a}, (how much is|what do i pay for) the {p}
        my friend is {a}, what does the {p} cost
        {c1} ticket {p}
        what will {a} pay (at|for) the {p}
        how much should {a} pay for the {p}
        is there a (price|ticket|discount) for {c} at the {p}
        how much (is|does) {a} ticket (for|to|at) the {p} [cost]
        what does {a} ticket (for|to|at) the {p} cost
        how much is the {p} for (a|one) [single] {c1}
        how much is the {p} for {c}
        (price|cost|ticket|entry) [for] {c} {p}
        {p} (price|ticket|prices) [for] {c}
        {a} ticket (for|to) the {p}
        what do {c} pay (at|for) the {p}
        what does {a} pay (at|for) the {p}
        what is the (price|entry fee|fee) for {c} at the {p}
        how much do {c} (pay|cost) (at|for) the {p}
        what does the {p} cost for {c}
        what is the {c1} price (at|for) the {p}
        i (need|want|would like) {a} ticket (for|to) the {p}
        do {c} (have to|need to) pay (at|for) the {p}
        (can|could) you tell me (the price|what it costs) for {c} at the {p}
        is the {p} free for {c}
        how expensive is the {p} for {c}
        are tickets for the {p} cheaper for {c}
        what is the price of {a} ticket (for|to) the {p}
        how much does the {p} cost for {a}
        * what does it cost for {c} to visit the {p}
        * at the {p}, how much do {c} pay
        * what would {a} pay for the {p}
        * tell me the price of {a} ticket for the {p}
        * how much is entry to the {p} for {c}
        * do you know the price for {c} at the {p}
        what do you (charge|take) {c} for the {p}
        how much is {a} at the {p}
        how much for {a} (at|to get into|in) the {p}
        what's {a} ticket (for|to) the {p}
        (just one|one|a single) {c1} for the {p}[, how much]
        (what's|what is) the {c1} (price|fare|rate|fee) (at|for) the {p}
        does {a} pay (at|for) the {p}
        do you charge {c} (at|for) the {p}
        (i am|i'm) {a}[,] and want to (see|visit) the {p}, what do i pay
        {c} at the {p}
        how much would {a} ticket (for|to) the {p} be
        {p} for {a}
        is there a cheaper ticket for {c} at the {p}
        (what is it|how much is it) for {a} to (see|visit|get into|go into) the {p}
        {a} for the {p}, how much
        as {a}, what do i pay (at|for) the {p}
        as {a}, how much is the {p}
        (i am|we are|i'm|we're) taking one {c1} to the {p}, (how much is that|what does that cost|what do we pay)
        one {c1} [ticket] for the {p} (please|how much|, what does it cost)
        a ticket for one {c1} (to|for) the {p}
        just {a} (to|for) the {p}, (how much|what's the price)
        {p}, one {c1}[, price|, how much]
        1 {c1} {p}
        {p} 1 {c1}
        what is the {p} {c1} (price|ticket|fare)
        {c1} (price|rate|fee|tariff) (for|at) the {p}
        (do|will) {c} (pay less|get a discount|get in cheaper|pay the full price) (at|in) the {p}
        is there a special {c1} (price|ticket|rate) (at|for) the {p}
        do {c} (get|go) into the {p} (free|for free|cheaper)
        how much for {c} (at|in|to get into) the {p}
        what's the (damage|cost|price) for {a} at the {p}
        (can|could) {c} go to the {p} for less
        the {p} {c} price
        what's the {p} for {a}
        do {c} (get|go|come) into the {p} (for less|for a lower price|cheaply|for free|at a reduced price)
        {know} what {c} pay (at|for) the {p}
        {know} (the price|the fee|the cost) (of|for) {a} (at|to|in) the {p}
        {a} at the {p}{sep}(how much|price|what does it cost|cost|what's the damage)
        the {p}{sep}{a}{sep}(how much|price|what does it cost|cost|what's the damage)
        the {p}{sep}(price|cost|fee|ticket|how much) (for|of) {a}
        what (would|will|does) it cost {a} to {visit} the {p}
        what's the damage for {a} (at|in) the {p}
        {companion} is {a}{comma}what does the {p} cost
        {companion} is {a} and wants to {visit} the {p}{comma}(how much|what does it cost|what is the price)
        how much (money|) (must|should|would|will) {a} (bring|pay|have|spend) (at|for) the {p}
        how (deep|far) does {a} dig into the pocket for the {p}
        are {c} (charged|asked to pay|paying) at the {p}{sep}how much
        per {c1}, (what does|how much does) the {p} cost
        (tickets|admission|entry|prices) for {c}{sep}the {p}
        {c}{sep}the {p}{sep}(how much|price|what do they pay)
        i am (asking|paying|booking) for {a}{sep}the {p}{sep}(how much|price|what does it cost)
        """,
    "bill": """
        (i have|we have|there are) {party}, (how much is|what does) the {p} [cost]
        there are {party} (in our group|with me|with us), what do we pay for the {p}
        {party}, {p}
        how much for {party} (at|to|for) the {p}
        (if we are|with) {party}, (how much is|what does) the {p} [cost]
        {party} want to (visit|see) the {p}, (how much is it|what does it cost|what do they pay)
        at the {p}, what do {party} pay
        tickets to the {p} for {party}
        can you calculate the price of the {p} for {party}
        what do (i|we) pay for {party} (at|in) the {p}
        (sell|give) me tickets for {party} to the {p}
        how much (is|does) the {p} [cost] for {party}
        what does the {p} cost for {party}
        {party} (for|to|at) the {p}
        {p} [for] {party}
        how much do {party} (pay|cost) (at|for) the {p}
        what do {party} pay (at|for) the {p}
        we are {party}, (how much is|what does) the {p} [cost]
        (tickets|price|entry) for {party} (at|to|for) the {p}
        i (need|want|would like) tickets for {party} (to|for) the {p}
        we (want|would like) to (visit|see|go to) the {p} with {party}, (how much is it|what does it cost)
        how much (are|would be) tickets for {party} (to|for|at) the {p}
        what is the (total|price|total price) for {party} (at|to|for) the {p}
        (could|can) you tell me (the price|what it costs) for {party} at the {p}
        how much (would|will) {party} (pay|be) at the {p}
        how much is it for {party} (at|to|for) the {p}
        what would the {p} cost for {party}
        {party} please, (for the|to the|the) {p}
        the {p} for {party}, how much (is that|is it)
        * how much money do we need for the {p} with {party}
        * we are {party} and want to see the {p}, what do we pay
        * what is the price of the {p} for {party}
        * for {party}, how much is the {p}
        * please tell me what {party} pay at the {p}
        * i'd like to buy tickets for {party} to the {p}
        what's the (total|damage|bill|price|cost) for {party} (at|for|to) the {p}
        (it's|it is|that's|there's) {party}, (how much is|what does) the {p} [cost]
        {party} going to the {p}, (what does that cost|how much is that|how much will it be)
        how much would it be to take {party} to the {p}
        i (am|'m) (here|coming) with {party}, what (will|does) the {p} cost [us|me]
        (we|i) want to (book|buy|get) {party} (for|at) the {p}, how much is (it|that)
        what do i owe you for {party} (at|to) the {p}
        what would {party} (pay|have to pay|cost) to (see|visit|get into|enter) the {p}
        to get {party} into the {p}, how much is it
        can i get {party} for the {p}[, how much]
        the {p}, {party}[, how much|, what's the total|, total please]
        {p}: {party}
        (a group of|our group is|my group is|in my group there are) {party}, what does the {p} cost
        total for {party} at the {p}
        (our family|the family) is {party}, how much (do we pay|is it) (at|for) the {p}
        if i (bring|take|come with) {party} to the {p}, what (do i pay|does it cost|will it cost)
        entrance to the {p} for {party}, how much
        (we've got|we got|i've got) {party}, what's the {p} (gonna cost|going to cost|cost)
        how much all together for {party} at the {p}
        (work out|figure out|add up) the {p} for {party}
        {p} for a (family|group|party|class|school class) of {party}[, how much]
        (a|our|the) (family|group) of {party} (at|for) the {p}[, what do we pay]
        (we are|we're) a (family|group|party) (of|with) {party}, (how much is|what does) the {p} [cost]
        a school class of {party} (at|visiting) the {p}, what does it cost
        what would it cost (me|us) to (take|bring) {party} to the {p}
        if {party} (come|go) to the {p}, what's the (price|total|cost)
        how much (altogether|in total|overall) for {party} (at|to) the {p}
        {party} at the {p}, how much (altogether|in total|is that|would that be)
        (what|how much) (does|would) a visit to the {p} (with|for) {party} cost
        {p} tickets for {party}
        {party}: {p}, (how much|total|price)
        i (want|need|would like) to pay for {party} at the {p}
        could you (calculate|compute|work out|tell me) what {party} pay (at|for) the {p}
        sum for {party} (at|in) the {p}
        {p} {party} (total|how much|price|in total|total please)
        {party} {p} (total|how much|price|cost)
        (me and my family|we) want to see the {p}: {party}. (how much|price|total)
        what do we pay at the {p}, (we are|there are|it's) {party}
        how much is the {p}, (we are|there are|for) {party}
        what does the {p} cost, (we are|we'd be|there would be) {party}
        in total {party} (for|at) the {p}
        (i am|i'm) (booking|paying|asking) for {party}, the {p}, how much
        {party} (at|for|to|in|into) the {p}{sep}{total}
        the {p}{sep}{party}{sep}{total}
        {total}{sep}{party} (at|for|to) the {p}
        {total}{sep}the {p}{sep}{party}
        {total} (for|if it's|with|if we are) {party} at the {p}
        (we're|we are|it's|there's|there are) {party} and {fancying} the {p}{sep}{total}
        {party} {fancying} the {p}{sep}{total}
        {planto} {visit} the {p}{comma}{party}{sep}{total}
        {planto} {visit} the {p}, {total} for {party}
        for the {p}{sep}{party}{sep}{total}
        the {p} with {party}{sep}{total}
        (can|could) {party} {enter} the {p}, and what's the (sum|total|bill|price|cost)
        {know} what {party} (pay|would pay|have to pay) (at|for|in) the {p}
        (i need|we need|i'll take|give me|can i have) {party}(: |, | - |. )the {p}(, please|. {total}|)
        my (group|class|family|club|team|crew|party) (has|is|counts) {party}{comma}{total} (at|for) the {p}
        {party} (are|will be|would be) {visiting} the {p}{sep}{total}
        our (club|class|team|choir|family|book club|office|band), {party}, {wants} the {p}{sep}{total}
        what does the {p} (charge|want from|take from|ask of) {party}
        the {p} is our (next stop|plan|goal|choice){sep}{party}{sep}{total}
        (if|when|suppose|say) {party} {visit} the {p}, {total}
        {p} {party} {total}
        {party} {p} {total}
        what if {party} (turn up|show up|arrive|come) at the {p}{sep}{total}
        (tickets|admission|entry){sep}{party}{sep}the {p}
        (i am|i'm) (coming|here) with {party} to {visit} the {p}{sep}{total}
        the {p}{sep}how much if we are {party}
        (quick sum|sum|bill|offer|a quote) please{sep}{party}, the {p}
        (quick sum|sum|bill|offer|a quote) for {party} (at|to see) the {p}
        could you (calculate|add up|work out|compute){sep}{party} (at|in) the {p}
        {party}. how much do (we|they) pay for the {p}
        the {p}{sep}{are}{sep}{total}
        {are}{sep}{total} (at|for) the {p}
        {planto} {visit} the {p}{comma}{are}{sep}{total}
        {are}. what do we pay (at|for) the {p}
        (just|only) {party} (at|for|in) the {p}{sep}{total}
        {party} (only|and nobody else|and no one else|and that's all|, no more) (at|for|in) the {p}{sep}{total}
        the {p}{sep}(just|only) {party}{sep}{total}
        """,
    "change": """
        (is|are|would|will) {m} (enough|be enough|ok|do|be ok|cover it) for {party} (at|to visit|for|in) the {p}
        i have {m}, (is that enough for|can i pay for|does that pay for|will it do for) {party} (at|in) the {p}
        (do|does|will|would) {m} (cover|pay for|be enough to pay for|get us) {party} (at|for) the {p}
        {m} for {party} (at|in) the {p}(, | - |. |: )(is that enough|enough|will that do|does that cover it)
        {party} (at|for|to|in) the {p}{sep}{paying}{sep}{verdict}
        {party} (at|for|to|in) the {p}{sep}{paying}{sep}{verdict}
        the {p}{sep}{party}{sep}{paying}{sep}{verdict}
        {p} {party}{sep}{paying}{sep}{verdict}
        {paying} for {party} (at|to|for) the {p}{sep}{verdict}
        {paying}{sep}{party} (at|for|to) the {p}{sep}{verdict}
        {changeback} from {m} (for|if we buy|after|when i pay for) {party} (at|for) the {p}
        {changeback} (if|when) (we|i) pay (for|) {party} at the {p} with {m}
        {party} {fancying} the {p}{sep}{paying}{sep}{verdict}
        {planto} {visit} the {p}, {party}{sep}{paying}{sep}{verdict}
        (we are|we're|there are) {party}{sep}{paying}{sep}{suffice} for the {p}
        {paying}{sep}(can|could) {party} {enter} the {p}
        (can|could) {party} {enter} the {p} (for|with|on) {m}
        (can|could) (we|i) (afford|pay for) {party} at the {p} with {m}
        {know} (if|whether) {m} (is|are) enough for {party} at the {p}
        {person} (gave|lent) me {m}{sep}(is that enough|will that do) for {party} (at|in) the {p}
        tickets for {party} to the {p}{sep}{paying}{sep}{verdict}
        what (is|would be) (left|left over) (of|from) {m} after {party} (at|in) the {p}
        how much (is|will be|would be) left (of|from) {m} if we take {party} to the {p}
        {party}, {p}, {m}{sep}{verdict}
        (paying|we pay|i pay) {party} at the {p} with {m}{sep}{changeback}
        {party} for the {p} please, (here is|here's|here are) {m}
        the {p} with {party}, (here is|here's|i give you) {m}{sep}{changeback}
        (how much|what) do i (need|have) to add to {m} for {party} at the {p}
        do {party} get into the {p} (for|with) {m}
        {changeback} if (i|we) (give you|hand you|hand over|give them) {m} for {party} (at|in) the {p}
        if (i|we) (give you|hand over|pay|put down) {m} for {party} (at|in) the {p}{comma}{changeback}
        (do|would) (i|we) have enough with {m} for {party} (at|in) the {p}
        (would|will) {m} get {party} into the {p}
        how much (more do i need|am i short|is missing) for {party} (at|in) the {p} (if|when) i have {m}
            (how short|how far short|how much short|by how much) am i [short] (if|when) i (have|only have|bring|carry|hold) {m} and (need|want|buy|have to pay for) {party} (at|for|in) the {p}
        (how short|how far short|how much short) are we (if|when) we (have|only have|bring|carry) {m} and (need|want|buy|have to pay for) {party} (at|for|in) the {p}
        (i have|i've got|we have|we've got) {m} (and|but) (need|want|would like|must buy) {party} (at|for) the {p}{sep}(how short am i|how short are we|what am i missing|what's missing|how much do i lack|how much more)
        (how much|what) (am i|are we) (missing|lacking|short of) (with|if there is only) {m} for {party} (at|in) the {p}
        (how much too little is|is it too little,|how far off is) {m} for {party} (at|in) the {p}
        (our|my) (budget|limit) is {m}{sep}{party} (at|for) the {p}{sep}(is that within it|does it fit|are we over|how much over|how much under|how much is left)
        {party} (at|for|in) the {p} on a budget of {m}{sep}(does it fit|does that work|possible|is it doable|are we over budget|how much over)
        (how much|how far) over (my|our) {m} (is|are|would be) {party} (at|in|for) the {p}
        (i'm|i am|we're|we are) (short of|low on) (cash|money), (just|only) {m} left{sep}{party} (at|for) the {p}{sep}{verdict}
        (how much|what) (do|would) i still (need|lack|have to find) for {party} (at|in) the {p} with {m} in hand
        {party} (at|for) the {p}, {m} in (my|our) (pocket|purse|wallet){sep}(how much short|how short|{verdict})
        (will|would) (i|we) be short (with|if we have|if i have) {m} for {party} (at|in) the {p}
        with {m} in my pocket{comma}how (short|far short) (am i|are we) of {party} (at|for) the {p}
    """,
    "change_items": """
        (is|are|would|will) {m} (enough|be enough|ok|do|be ok|cover it) for {items}
        i have {m}, (is that enough for|can i pay for|can i buy|can i get|will it do for) {items}
        (do|does|will|would) {m} (cover|pay for|be enough to pay for|get us) {items}
        {m} for {items}(, | - |. |: )(is that enough|enough|will that do|does that cover it)
        {items}{sep}{paying}{sep}{verdict}
        {items}{sep}{paying}{sep}{verdict}
        {items}{sep}{paying}{sep}{verdict}
        {paying} for {items}{sep}{verdict}
        {paying}{sep}{items}{sep}{verdict}
        {changeback} from {m} (for|if we buy|after|when i buy) {items}
        {changeback} (if|when) (we|i) (buy|pay for|order) {items} with {m}
        (i'd like|i'll take|i'll have) {items}{sep}{paying}{sep}{verdict}
        {paying}{sep}(can|could) (i|we) (get|have|buy|afford) {items}
        (can|could) (we|i) (afford|pay for|buy) {items} (with|for) {m}
        {know} (if|whether) {m} (is|are) enough for {items}
        {person} (gave|lent) me {m}{sep}(is that enough|will that do) for {items}
        what (is|would be) (left|left over) (of|from) {m} after {items}
        how much (is|will be|would be) left (of|from) {m} if we (order|buy) {items}
        {items}, {m}{sep}{verdict}
        {items} and (i have|i've got|here is) {m}{sep}{verdict}
        (paying|we pay|i pay) {items} with {m}{sep}{changeback}
        {items} please, (here is|here's|here are) {m}
        (how much|what) do i (need|have) to add to {m} for {items}
        {changeback} if (i|we) (give you|hand you|hand over|give them) {m} for {items}
        if (i|we) (give you|hand over|pay|put down) {m} for {items}{comma}{changeback}
        (do|would) (i|we) have enough with {m} for {items}
        {items} (out of|from) {m}{sep}{changeback}
        how much (more do i need|am i short|is missing) for {items} (if|when) i have {m}
        {m} (against|minus) {items}{sep}what is left
            (how short|how far short|how much short|by how much) am i [short] (if|when) i (have|only have|bring|carry|hold) {m} and (need|want|buy|order) {items}
        (how short|how far short|how much short) are we (if|when) we (have|only have|bring|carry) {m} and (need|want|buy|order) {items}
        (i have|i've got|we have|we've got) {m} (and|but) (need|want|would like|must buy) {items}{sep}(how short am i|how short are we|what am i missing|what's missing|how much do i lack|how much more)
        (how much|what) (am i|are we) (missing|lacking|short of) (with|if there is only) {m} for {items}
        (our|my) (budget|limit) is {m}{sep}{items}{sep}(is that within it|does it fit|are we over|how much over|how much under|how much is left)
        {items} on a budget of {m}{sep}(does it fit|does that work|possible|is it doable|are we over budget|how much over)
        (how much|what) (do|would) i still (need|lack|have to find) for {items} with {m} in hand
        {items}, {m} in (my|our) (pocket|purse|wallet){sep}(how much short|how short|{verdict})
    """,
    "change_parked": """
        parking for {n}{sep}{paying}{sep}{verdict}
        {n} of parking{sep}{paying}{sep}{verdict}
        {paying} for {n} of parking{sep}{verdict}
        (is|are) {m} enough for {n} of parking
        (is|are) {m} enough to park for {n}
        the car stays for {n}{sep}{paying}{sep}{verdict}
        """,
    "left": """
        the {p} for {party}{comma}{away}{sep}{total}
        {p} for {party}, {away}{sep}{total}
        {p} for {party}, {away}
        {away}{comma}{total} for {party} (at|for|in) the {p}
        {total} for {party} (at|for|in) the {p}{sep}{away}
        {total} (at|for|in) the {p} for {party}, {away}
        {away}, so (only|just|it's|we need) {party} (at|for|in) the {p}{sep}{total}
        (tickets|entry|admission) for {party} to the {p}, {away}
        (what does|how much is) the {p} [cost] for {party}, {away}
        what (do|would) {party} pay (at|for|in) the {p}{sep}{away}
        {away} and we want to see the {p}{sep}{total} for {party}
        {party} (at|for|in) the {p}, {away}{sep}{total}
        the {p}{sep}{away}, so {total} for {party}
        as {away}, {total} for {party} (at|for|in) the {p}
        {away}. (can i have|i'd like|give me) tickets for {party} to the {p}{sep}{total}
    """,
    "split": """
        {party} (at|for|in) the {p}{sep}(split|divided|shared) (between|among) (two|three|four|the two|both) (of us|families|people|friends)
        {total} for {party} (at|for|in) the {p} (split|divided|shared) (between|among) (two|three|four) (of us|people|friends)
        (if|when) we split {party} (at|for) the {p} (equally|in two|between us){comma}how much (is that|is a share|each)
        {party} (at|for|in) the {p}{sep}(what is|how much is) (my|one|a) (half|share|third)
    """,
    "taken": """
        (i'm|i am) (taking|bringing) {kin} (to|to see|up to|into|around) the {p}{sep}(how much|what does it cost|what is it) for {us}
        (i'm|i am) (taking|bringing) {kin} (to|to see|up|into|in) the {p}{sep}{total}
        (i'm|i am) (taking|bringing) {kin} (to|to see|up|into|in) the {p}{sep}{total} for {us}
        i (want to|'d like to|would like to|plan to|will|'ll) (take|bring) {kin} to the {p}{sep}(how much|what|the price|the total|cost) for {us}
        (i'm|i am) going (to|up|into|round) the {p} with {kin}{sep}(how much|what is it|what's the price|total) for {us}
        i (take|bring) {kin} to the {p}, {us}{sep}{total}
        (how much|what) (is|would be) the {p} for {us}{sep}(me and|myself and|i and) {kin}
        the {p} for {us}: (me and|me with|myself and) {kin}
        i (go|come|walk|climb) (to|into|up) the {p} (with|together with) {kin}{sep}{total} for {us}
        taking {kin} to the {p}{sep}(how much|price|total|what) for {us}
        taking {kin} to the {p} (with me|myself){sep}{total}
        (how much|what) (is it|will it cost|does it cost|would it be) for {us} if i (take|bring) {kin} to the {p}
        {kin} (and|plus) me (at|for|in) the {p}, so {us}{sep}{total}
        i promised {kin} a visit to the {p}{sep}(how much|what is it|price) for {us}
        i (invite|treat|am inviting|am treating) {kin} to the {p} and come along{sep}{total} for {us}
        i'll be at the {p} with {kin}{sep}{total} for {us}
        me included, {kin} (at|for) the {p}{sep}{total}
        {kin}, and (count me in|i come too|i'm coming too|me as well), (at|for) the {p}{sep}{total}
        {kin} (at|for) the {p}, (including me|counting me|with me on top|and i'm one more){sep}{total}
        (i'm|i am) (accompanying|escorting|joining) {kin} (to|at|into) the {p}{sep}(how much|what is it) for {us}
    """,
    "sent": """
        tickets to the {p} for {kin}, (i'm not going|i'm not going in|i stay outside|not for me|i don't need one){sep}(how much|price|total|what's the total)
        i (buy|pay|am paying|'m buying|want to pay) for {kin} (at|for) the {p}, (but i'm not coming|i stay out|i'm not going in|but not for myself){sep}(how much|total|how much is it)
        {kin} (want|would like) to see the {p} without me{sep}(how much|what do they pay|what does it cost|total)
        (i'm|i am) only (dropping off|bringing|sending in) {kin} at the {p}, i (wait|stay) outside{sep}(how much|what do they pay|total)
        the {p} for {kin}{sep}(i've been already|i'll wait here|i wait outside|i'm not coming|i'm staying out here){sep}how much for {them}
        (how much|what) (is|would be) the {p} for {kin}{sep}for {them}
        the {p} for {kin}, so for {them}{sep}(how much|what does it cost|total)
        (i'll|i) wait (outside|in the cafe|on a bench|here) while {kin} (visit|go to|see|do) the {p}{sep}(how much|what do they pay|total|price)
        {kin} go to the {p} (alone|on their own|by themselves|without me){sep}(how much|what do they pay|what does it cost)
        (i'm|i am) too (tired|lazy|busy|scared) (for the {p}|to come){sep}what do {kin} pay (there|) at the {p}
        it's a (present|gift|treat|birthday present) for {kin}: the {p}, without me{sep}(how much|price|total)
        (how much|what) do {kin} pay (at|for) the {p} if i (don't come|stay outside|am not with them|wait here)
        {kin} to the {p}, not me{sep}(how much|total|price)
        {p} for {kin} only, i (know it already|have seen it|don't like it|stay here){sep}(how much|total|price)
        except for me, {kin} (are going|go|want to go) to the {p}{sep}(how much|what do they pay|total)
    """,
    "uncounted": """
        {party} (at|for|in) the {p}{sep}{total}
        {party} (at|for|in) the {p}
        {total} for {party} (at|for|in) the {p}
        the {p} (for|with) {party}{sep}{total}
        {planto} {visit} the {p}{sep}{party}{sep}{total}
        (what does|how much is) the {p} [cost] for {party}
        {party} {fancying} the {p}{sep}{total}
        {p}{sep}{party}
        it's {party}{sep}{total} (at|for) the {p}
        {party}, (and grandma stays at home|my wife stays in the hotel|no babies){sep}{total} (at|for) the {p}
        what do we pay (at|for|in) the {p}, it's {party}
        (tickets|entry) to the {p} for {party}
    """,
    "along": """
        {along}{sep}{total} (at|for|in) the {p}
        {along}{sep}{total} (at|for|in) the {p}
        {along}. {planto} {visit} the {p}{sep}{total}
        the {p}{sep}{along}{sep}{total}
        the {p}{sep}{along}{sep}{total}
        {along}{sep}the {p}{sep}{total}
        {total} (at|for) the {p}{sep}{along}
        {planto} {visit} the {p}{sep}{along}{sep}{total}
        (at|for) the {p}{sep}{along}{sep}{total}
        {along}, {p}
        {p}{sep}{along}
        {along}{sep}(what does the {p} cost|how much is the {p}|what's the {p}) [us|for us|for all of us]
        {along}{sep}what do we pay (at|for|in) the {p}
        {know} what we pay (at|for) the {p}{sep}{along}
        {along}{sep}(tickets|entry|admission) (to|for) the {p}
            {along}{sep}{total} (to get into|to visit|to see|for) the {p}
        (price|tickets|entry) (for|to) the {p}{sep}{along}
        the {p}{sep}{along}
        what does the {p} (cost|come to|set us back){sep}{along}
        we {fancying} the {p}{sep}{along}{sep}{total}
        (what|how much) (would|will) the {p} be{sep}{along}
    """,
    "item": """
        how much for {i}
        {is_} price
        is there {i} to buy
        can i have {i}
        do they (have|sell) {is_}
        what will {i} cost
        how much (is|does) {i} [cost]
        what does {i} cost
        what is the price of {i}
        (price of|price for|cost of) {i}
        how much (are|do) [the] {is_} [cost]
        what do {is_} cost
        i (want|would like|need) {i}, how much is (it|that)
        do you (have|sell) {is_}
        (where|can) (can i|i) (buy|get|find) {i} [here]
        {i}, how much
        how expensive is {i}
        can (i|we) (buy|get) {is_} (here|in the park|somewhere)
        where do you (have|sell) {is_}
        are there {is_} (here|to buy)
        what would {i} cost
        * how much do you charge for {i}
        * what do i pay for {i}
        * tell me the price of {i}
        * is it possible to buy {is_} here
        do you do {is_} [here]
        (what's|whats) {i}
        how much would {i} (be|set me back)
        i (fancy|could do with|am dying for|really want) {i}[, how much is it|, what does it cost]
        (got any|have you got|do you have any) {is_}
        (where's|where is) the best place (for|to get) {i}
        how much for a single {i_}
        what's the price of {is_} (here|in the park|)
        what do you (charge|want|take) for {i}
        (my son|my daughter|my kid|the little one) wants {i}[, how much|, what does it cost]
        {i_} price
        {i_}
        who sells {is_}
        is there anywhere (selling|that sells) {is_}
        (i am|i'm) (looking for|after) {i}
        where (do|can|could) (i|we) (get|buy|find) {i}, and (how much is it|what's the price)
        {is_}, how much
        how much are your {is_}
        can you sell me {i}
        any {is_} (here|for sale|around)
        i (could use|could murder|would love) {i} [now]
        what's the cost of {i}
        how much does one pay for {i}
        (would|can) i (find|get) {is_} (here|anywhere|somewhere)
        where can (i|we) get a nice {i_}
        how much do they (want|ask|charge) for {i}
        is it expensive to (buy|have) {i}
        {i}, (please|pls)
        (my|our) {kinone} (collects {is_}|loves {is_}|wants {i}|asked for {i}){comma}(how much is one|how much|the \
            price)
        {i}{sep}(how much|price|what does it cost|cost|what's the damage|do you have that)
        {know} what {i} costs
        {know} (if|where) (you sell|i can buy|we can get) {is_}
        i (feel like|am in the mood for|promised her|have to buy|could go for) {i}{comma}(how much is it|the price)
        the price (of|for) {i}
        (do|would) they (charge|take|ask) a lot for {i}
        what (would|will) {i} (set me back|come to|be)
        """,
    "replaced": """
        my {i_} (broke|is broken|is ruined|got lost|was stolen|fell to pieces|has had it|gave up){sep}(what's a new one|how much is a new one|can i buy a new one|where do i get a new one|the price of a new one)
        (i|we|my {kinone}) (broke|lost|forgot|ruined) (my|our|the) {i_}{comma}(what's a new one|how much is a new one|can i buy another|where do i get another)
        (i|we) need a new {i_}[{sep}(how much|where|the price|what does it cost)]
        """,
    "items": """
        {items}, how much is that
        how much for {items}
        what will {items} cost
        (i|we) want to buy {items}
        (add up|calculate|what is the cost of) {items}
        can you sell me {items}
        for {items}, what do i pay
        (let me|let us) have {items}
        what is it for {items}
        how much (is|are|does|do) {items} [cost]
        what do {items} cost
        {items} [please]
        what is the (price|total|total price) of {items}
        i (want|would like|need) {items}, how much is (it|that)
        how much do (i|we) pay for {items}
        (could i have|can i have|i'll take|i take|give me) {items}
        price (of|for) {items}
        we (want|would like|take) {items}, what does that cost
        how much would {items} (be|cost)
        what does it cost to buy {items}
        * what do we pay for {items}
        * i'd like {items}, what is the price
        * tell me the total for {items}
        * how much money do i need for {items}
        how much will (i|we) pay for {items}
        what's (the total|the damage|it come to) for {items}
        {items}, what's the total
        (what would|how much would) it come to for {items}
        {items} for (us|my family|the kids|everyone), how much is (that|it)
        we (need|are buying|would like to buy|fancy|are after) {items}[, how much|, what will that be|, what's the price]
        (i'm buying|i am getting|i want to get) {items}, how much
        (what do|how much do) i owe you for {items}
        how much do (they|you) (take|charge|want) for {items}
        if i (buy|get|order|take) {items}, (how much is it|what does it cost|what do i pay)
        total for {items}
        can i get {items}[, how much is that]
        (price|cost) for {items} please
        buying {items}, how much (money|cash) do i need
        {items}, (total|total please|sum|altogether|in total|all together)
        sum of {items}
        (we'd|i'd|we would|i would) like {items}. (what's the total|how much is that|what does that come to)
        {items} to go
        can you (add up|calculate|work out|sum up) {items}
        how much (altogether|in total|all together) for {items}
        for {items} how much (money|cash) do (i|we) need
        we're (ordering|having|getting) {items}[, how much is that]
        (my|our) (kids|friends) (want|would like) {items}[, how much|, what does it cost]
        (if we have|if we order|suppose we order) {items}, what (is|would be) the (bill|total|price)
        {items} how much
        {items}. (how much|total|price|cost)
        (i'll have|we'll have|i'd take|get me|bring us) {items}[, what's that]
        what's {items} (together|altogether|in total)
        {items}{sep}{total}
        {total}{sep}{items}
        {total} for {items}
        (i'd like|we'd like|i'll have|we'll take|we need|can i have|we want|i'm after|we fancy) {items}{sep}{total}
        {know} what {items} (cost|would cost|come to)
        {person} (wants|would like|is getting|asked for) {items}{sep}{total}
        (my|our) (kids|friends|parents|guests) (want|would like|ordered|asked for) {items}{sep}{total}
        (one bill|the bill|a receipt|a price) for {items}
        (what|how much) do i (pay|owe|need) if i (buy|take|order|have) {items}
        here's (our|my) (order|list){sep}{items}[{sep}{total}]
        our order{sep}{items}
        shopping list{sep}{items}
        """,
    "add": """
        {x} and {y} is
        what does {x} plus {y} make
        i have {x} and {y}, what is the sum
        tell me {x} plus {y}
        how much do {x} and {y} make
        what is {x} plus {y}
        what is {x} + {y}
        {x} + {y}
        {x} plus {y}
        {x}+{y}
        how much is {x} (plus|and|+) {y}
        (add|sum) {x} and {y}
        (can you|please) add {x} (and|to) {y}
        what's {x} (+|plus) {y}
        calculate {x} (+|plus) {y}
        {x} + {y} =
        * what do you get for {x} plus {y}
        * what is the sum of {x} and {y}
        * please calculate {x} plus {y}
        {x} plus {y} (equals|makes)
        {x} and {y} (makes what|equals what|together)
        how much is {x} added to {y}
        what do {x} and {y} (add up to|make together|make)
        (do|solve) {x} + {y}
        """,
    "about": """
        the {p}, please tell me more
        (do you know|can you say) (anything|something) about the {p}
        (i'd|we'd|we would) like to know more about the {p}
        tell me (about|something about|more about) the {p}
        what is the {p}
        [i have] a question about the {p}
        (i want|i would like|i need) (information|something|to know something) about the {p}
        info [about|on] [the] {p}
        i want to know more about the {p}
        i am interested in the {p}
        * what can you tell me about the {p}
        * could you tell me something about the {p}
        (what's|whats) the {p}
        what is the {p} like
        (is the {p} any good|is the {p} worth it|is the {p} nice)
        (any|some) (information|info|details) (on|about) the {p}
        what can (i|we) expect (at|in) the {p}
        i have a question (about|regarding|on) the {p}
        describe the {p}
        (give me|do you have) (some|more) (details|information) (on|about) the {p}
        (a question|something) about the {p}
        i'd like to ask about the {p}
        (anything|something) (interesting|worth knowing|new) about the {p}
        {know} (something|more|anything) about the {p}
        what should (i|we) know about the {p}
        my {kinone} asked about the {p}
        (i've|i have|we have) never heard of the {p}{comma}what is it
        """,
    "at_time": """
        is the {p} [still|already] open (at|around|after|before) {t}
        can (i|we) [still] (visit|see|go to|get into) the {p} (at|around|after|before) {t}
        {p} at {t}
        (i|we) would (come|be there) at {t}, is the {p} open
        is {t} (too late|too early|ok) for the {p}
        will the {p} be open at {t}
        does the {p} close (at|before|after) {t}
        does the {p} open (at|before|after) {t}
        * is it possible to enter the {p} at {t}
        is the {p} (usually|normally) open at {t}
        does the {p} stay open until {t}
        (how about|what about) {t} (at|for) the {p}
        could (i|we) still get into the {p} at {t}
        is the {p} open (as late as|as early as) {t}
        is the {p} [still|already] open (by|from|until|past) {t}
        (we|i) (get|arrive) there at {t}, is the {p} open
        {canwe} [still] {enter} the {p} at {t}
        {know} (if|whether) the {p} is [still|already] open at {t}
        the {p} at {t}{sep}(open|possible|ok|yes or no)
        i {ends} at {t}{comma}(is the {p} still open|can i still get into the {p}|would i make it into the {p})
        {event} at {t}{comma}(is the {p} open then|can we still see the {p})
        """,
    "open_at": """
        what is [still|already] open (on|) {d} at {t}
        what is [still|already] open at {t} on {d}
        what's [still|already] open [on] {d} (at|around|after) {t}
        (which|what) (places|attractions) are [still|already] open (at|after) {t} on {d}
        (which|what) (places|attractions) are [still|already] open [on] {d} (at|after) {t}
        what can (i|we) (visit|see|do) at {t} on {d}
        what can (i|we) (visit|see|do) [on] {d} (at|around|after) {t}
        where can (i|we) [still] go [on] {d} (at|after) {t}
        on {d} at {t}, what is open
        (i am|we are|i'm|we're) here on {d} at {t}, what (is open|can we see)
        is (anything|something) [still|already] open [on] {d} (at|after) {t}
        (list|tell me) what is open on {d} at {t}
        we arrive on {d} at {t}, what can we still (see|visit|do)
        {d} {t}, what is open
        * which places could we visit on {d} at {t}
        * on {d}, is there anything open at {t}
        anything [still|already] open [on] {d} (at|after) {t}
        where can (we|i) still go {d} {t}
        {d} (at|around) {t}, (what|which) places are open
        what could (i|we) (do|visit|see) on {d} at {t}
        which places (would|will) be open on {d} at {t}
        (suppose it is|let's say it is|it will be) {d} {t}, what's open
        is there anything to (visit|see|do) on {d} at {t}
        (we|i) (arrive|come) [on] {d} at {t}, what (is|would be) open
        what can (we|i) still do [on] {d} (at|after) {t}
        what is open {d} {t}
        what (could|can|might) (we|one|a family|visitors|i) (look at|see|visit|do) {at_dt}
        {at_dt}{sep}what (is open|can we see|can we visit|is there to do|places are open)
        {know} (what|which places|which attractions) (is|are) [still|already] open {at_dt}
        is (anything|something|any place) [going to be|still|already] open {at_dt}
        i {ends} at {t} on {d}{comma}what (is|will be) (open|still open) [then]
        {event} at {t} on {d}{comma}what (can we|could we) still (see|visit|do) [then]
        where {canwe} go {at_dt}
        which (doors|sights|places|attractions) are [still|already] open {at_dt}
        {at_dt}{sep}(anything|something) [still] open
        (does|will|would) (anything|any place|any attraction|anyone) (let us in|have its doors open|be open to us|receive us) {at_dt}
        {at_dt}{sep}(does|will|would) (anything|any place|any attraction) (let us in|be open|open its doors)
        """,
    "closed_on": """
        what is closed on {d}
        (which|what) (places|attractions|buildings) are (closed|shut|not open) on {d}
        what's (closed|shut) [on] {d}
        is (anything|something|any place) (closed|shut) on {d}
        on {d}, what is (closed|shut|not open)
        what can (i|we) not (visit|see) on {d}
        what can't (i|we) (visit|see|do) on {d}
        (i am|we are) coming on {d}, is anything closed
        closed [on] {d}
        * which places do not open on {d}
        * is some attraction closed on {d}
        which of your (places|attractions) are closed on {d}
        (if we come|if i come) on {d}, what (is closed|will we miss|can't we see)
        what (doesn't|does not) open on {d}
        what is not open on {d}
        what stays (closed|shut) on {d}
        anything (closed|shut|not open) on {d}
        which (attraction|place) is (closed|shut|not open) on {d}
        what (would|will|might) be (closed|shut|locked) if (we|i) (came|visited|turned up) {on_d}
        which (places|attractions|sights) (have|take) (their|a) (day off|rest day) {on_d}
        what (would|will|do) we miss {on_d} (because it is closed|, what is closed)
        {know} (what|which places|which attractions) (is|are) (closed|shut|not open) {on_d}
        {on_d}{sep}(what|which places) (is|are) (closed|shut|not open)
        if {comes} {on_d}, what (is closed|would be shut|do we find closed|won't be open)
        where {canwe} not go {on_d}
        which (doors|places|attractions) (stay|remain|are) (closed|shut|locked) {on_d}
        """,
    "people": """
        how much (is|does) the {p} [cost] for {x} [people|persons|of us]
        what does the {p} cost for {x} (people|persons|of us|visitors)
        {x} (tickets|people|persons) (for|to) the {p}[, how much]
        (we are|there are|we're) {x} (people|of us|persons|friends), how much is the {p}
        how much (are|for) {x} tickets (for|to) the {p}
        (a family of|group of|party of) {x} (at|for|to) the {p}[, what do we pay]
        how much for (my family|our family|the whole family|all of us|our group|the family) (at|for) the {p}
        (my family and i|my friends and i|me and my family) want to see the {p}, how much is it [for us]
        i (need|want|would like) {x} tickets (for|to) the {p}
        what do {x} (people|of us|persons) pay at the {p}
        what would a (family|group) pay at the {p}
        * what would it be for {x} visitors at the {p}
        * there will be {x} of us at the {p}, what does it cost
        (we are|we're) {x} [people] and want to (see|visit) the {p}, (how much is it|what do we pay)
        the {p} for {x} [people|persons][, how much|, price]
        what (do|would) we pay at the {p} as a (family|group)
        tickets for (us all|the family|our family|everyone) (to|at) the {p}
        (family ticket|family tickets|family price) (for|at) the {p}
        is there a family ticket for the {p}
        how much for (all the family|the six of us|four people|five people|our whole group) at the {p}
        we are (several|a few|many|a bunch of) (people|friends), what does the {p} cost [us]
        what (will|does) my (whole|entire) family pay (at|for) the {p}
        a (class|school class|party|coach) of {x} (at|for) the {p}[, how much|, what does it cost]
        (there's|there are|we're|it's) {x} of us(, |. |; )(what's|how much is|what does it cost for) the {p}
        {planto} {visit} the {p}{comma}(we are {x}|there are {x} of us|all of us|the whole family){sep}{total}
        the {p}{sep}{x} (people|persons|of us|visitors|guests|heads|tickets){sep}{total}
        {x} (people|persons|of us|visitors|guests) (at|for) the {p}{sep}{total}
        {total} (for|if we are) {x} (people|persons|visitors) at the {p}
        {total} for (our crew|my whole crew|the lot of us|our club|the whole gang|our group|all my guests) at the {p}
        {x} of us(, | - |. |, but )(no kids|no children|without children|no seniors|no students|without kids){sep}the {p}
        (we are|we're|just the) {x}(, | and |, but )(no kids|no children|without children|without kids){comma}what do we pay (at|for) the {p}
        the {p} for {x} (people|of us|persons), (no kids|no children|without seniors|without children|no students)
        """,
    "people_paid": """
        {x} (tickets|people|of us|visitors|persons|guests) (to|for|at) the {p}{sep}{paying}{sep}{verdict}
        (is|are|would) {m} (enough|be enough|do) for {x} (people|of us|tickets|persons) (at|for) the {p}
        the {p} for {x} (people|of us|persons|){sep}{paying}{sep}{verdict}
        (we are|there are|we're) {x} [of us]{sep}{paying}{sep}{suffice} for the {p}
        {paying} for (the family|all of us|our group|everybody) (at|in) the {p}{sep}{verdict}
        """,
    "cheaper": """
        (which|what) is cheaper, the {p} or the {o}
        (which|what) is (cheaper|less expensive|more expensive), the {p} or the {o}
        is the {p} (cheaper|more expensive|dearer) than the {o}
        (which|what) costs (more|less), the {p} or the {o}
        (does|will) the {p} cost (more|less) than the {o}
        the {p} or the {o}, which (is cheaper|costs less|costs more|is more expensive)
        (is|does) the {p} (as expensive as|cost as much as|cost the same as) the {o}
        how much (cheaper|more expensive) is the {p} than the {o}
        (what is|what's) the price difference between the {p} and the {o}
        compare the (prices|price) of the {p} and the {o}
        (compare|difference between) {p} and {o} (prices|price)
        (which|what) is (cheaper|more expensive) for {c}, the {p} or the {o}
        is the {p} (cheaper|more expensive) than the {o} for {c}
        for {c}, (which|what) is (cheaper|more expensive), the {p} or the {o}
        for {c}, is the {p} (cheaper|more expensive) than the {o}
        (do|will) {c} pay (more|less) (at|for) the {p} than (at|for) the {o}
        how much (cheaper|more expensive) is the {p} than the {o} for {c}
        where do {c} pay less, at the {p} or at the {o}
        is {a} ticket cheaper at the {p} or at the {o}
        we are on a budget, (is the {p} cheaper than the {o}|the {p} or the {o})
        how much more (is|does) the {p} [cost] than the {o}
        * which of the two is cheaper, the {p} or the {o}
        * is it cheaper to see the {p} or the {o}
        * do {c} pay the same at the {p} and the {o}
        which is the cheaper (one|option|choice), the {p} or the {o}
        do (i|we) save money at the {p} compared (to|with) the {o}
        (would|will) the {p} be (cheaper|more expensive) than the {o}
        {p} or {o}, (what's|which is|what is) (cheaper|more expensive|less expensive)
        where (do|would) (i|we) pay (less|more), at the {p} or at the {o}
        is the {p} pricier than the {o}
        which is pricier, the {p} or the {o}
        (what's|what is) (cheaper|more expensive|dearer), {p} or {o}
        does the {o} cost more for {c} than the {p}
        how much do (we|i) save at the {p} compared to the {o}
        {between} the {p} and the {o}{comma}which [one] {cheap}
        {between} the {p} and the {o}{comma}which [one] {dear}
        which [one] {cheap}{sep}the {p} or the {o}
        which [one] {dear}{sep}the {p} or the {o}
        the {p} or the {o}{sep}which [one] {cheap}
        the {p} or the {o}{sep}(what|which one) {dear}
        we (don't have|haven't got) much money{comma}the {p} or the {o}
        where do we (spend|part with) (less|more|more money|less money), (at|in) the {p} or the {o}
        for {c}{sep}which [one] {cheap}, the {p} or the {o}
        for {c}, which [one] {dear}{sep}the {p} or the {o}
        which [one] {cheap} for {c}{sep}the {p} or the {o}
        {between} the {p} and the {o}, which [one] {cheap} for {c}
        {know} (which of the two|which) {cheap}{sep}the {p} or the {o}
        (would|will|do) (we|i) (save|spend) (money|less|more) (at|with) the {p} instead of the {o}
        how big is the (difference in price|price gap|gap in price) between the {p} and the {o}
        does {a} pay (more|less) at the {p} than at the {o}
        {companion} is {a}{comma}which {cheap}, the {p} or the {o}
        the {p} (against|versus|vs) the {o}{comma}which [one] {cheap}
        the {p} (against|versus|vs) the {o}, for {a}{sep}which [one] {cheap}
        (does|will) the {p} {dearer_} {c} more than the {o}
        {p}, {o}{sep}which (one|of them|of the two) {cheap}
        """,
    "nearer": """
        (which|what) is (nearer|closer), the {p} or the {o}
        is the {p} (nearer|closer|further|farther) than the {o}
        (which|what) is (further|farther) [away], the {p} or the {o}
        the {p} or the {o}, which is (nearer|closer|further away)
        is the {p} or the {o} (nearer|closer)
        is it (further|closer|nearer) to the {p} or to the {o}
        (we are tired|my feet hurt), is the {p} or the {o} closer
        do (i|we) walk (longer|less|further) to the {p} or to the {o}
        * which one is nearer from here, the {p} or the {o}
        * what is the shorter walk, the {p} or the {o}
        (what's|what is) (nearer|closer) [from here|to us], the {p} or the {o}
        which one is (a shorter|a longer) walk, the {p} or the {o}
        where do (i|we) get (faster|sooner|quicker), to the {p} or to the {o}
        is the {p} (a shorter|a longer) walk than the {o}
        is it (longer|shorter|further|closer) to the {p} than to the {o}
        {p} or {o}, (what's|which is) (closer|nearer|further)
        do (we|i) get to the {p} (sooner|faster|quicker) than to the {o}
        {between} the {p} and the {o}{comma}which [one] {near}
        which [one] {near}{sep}the {p} or the {o}
        which [one] {far}{sep}the {p} or the {o}
        the {p} or the {o}{sep}which [one] {near}
        the {p} or the {o}{sep}which [one] {far}
        {walker} can't go far{comma}which {near}, the {p} or the {o}
        {know} (which of the two|which) {near}{sep}the {p} or the {o}
        from (here|this kiosk|where we stand)(,|) which {near}{sep}the {p} or the {o}
        {p}, {o}{sep}which (one|of them|of the two) {near}
        the {p}, the {o}{sep}which (one|of them|of the two) {near}
        the {p} (against|versus|vs) the {o}{comma}which [one] {near}
        """,
    "parked": """
        how much is parking for {n}
        what does it cost to park for {n}
        parking [for] {n}
        (i|we) (want|need|would like) to park for {n}, (how much is it|what does it cost)
        what do (i|we) pay (to park for|for parking for|for) {n} (of parking|in the car park|at the car park)
        (i|we) leave the car [here] for {n}, how much is that
        (my|our) car (is|was|stays) here for {n}, what do (i|we) pay
        how much for {n} of parking
        (price|cost|fee) for {n} parking
        we stay {n}, how much is (parking|the parking|the car park)
        if i park for {n}, (what do i pay|how much is it)
        * what is the parking fee for {n}
        * {n} in the car park, what does it cost
        (i|we) will be (here|parked) for {n}, what is the parking
        {n} of parking, (how much|what does it cost)
        how much (would|will|does) {n} of parking cost
        (leaving|parking) (the|my|our) car for {n}, what do i pay
        what do you charge for {n} of parking
        if the car (stays|is here) for {n}, what do i owe
        parking the car for {n}, how much
        my car stays in the car park for {n}, how much is (that|it)
        {wewant} (leave|park|keep) (the|our|my) (car|van|camper) [here|in the car park] for {n}{comma}{total}
        {n} in the car park{sep}{total}
        (parking|the car park|car park) for {n}{sep}{total}
        {total}{sep}(parking|the car park) for {n}
        (our|my|the) (car|van) (is|stays|stands|will be) (there|here|parked|in the car park) (for|) {n}{comma}{total}
        (we|i) (parked|left the car) {n} ago{comma}{total}
        {know} what (parking for {n}|{n} of parking) costs
        a parking (ticket|spot|place|space) for {n}{sep}{total}
        (we|i) (arrived by car and|came by car and|) stay (for|) {n}{comma}what does parking cost
        """,
    "too_late": """
        is {t} on {d} (too late|too early) for the {p}
        would {t} on {d} be (too late|too early) (for|to visit|to see) the {p}
        (we'd|we would|we'll|i'd) (get to|reach|be at|arrive at) the {p} (at|around|about) {t} on {d}, (is that|would that be) too (late|early)
        (we|i) (come|arrive) at {t} on {d}, is (that|it) too (late|early) for the {p}
        is it too (late|early) (for|to see) the {p} on {d} at {t}
        i {ends} at {t} on {d}{comma}is that too late for the {p}
        {event} at {t} on {d}{comma}(is that|would that be|will that be) too (late|early) for the {p}
        (is|would) {t} (be|) too (late|early) (for|to see|at) the {p} {on_d}
        """,
    "parked_span": """
        parking {n}
        parking {n}{sep}{total}
        (the car park|car park) {n}{sep}{total}
        {total}{sep}parking {n}
        {wewant} (leave|park|keep) (the|our|my) (car|van|camper) [here|in the car park] {n}{comma}{total}
        (we'd|we would|i'd|we'll) (leave|park|keep) (the|our|my) (car|van) [here|in the car park] {n}{comma}(parking \
            cost|{total})
        (our|my|the) (car|van) (is|stays|stands|will be) (there|here|parked|in the car park) {n}{comma}{total}
        {know} what parking costs {n}
        what does it cost to park {n}
        how much (do|will) (i|we) pay (to park|for parking) {n}
        if (we|i) park {n}{comma}{total}
        """,
}

# Phrasings in which "you" is the park as a whole.
PARK = {
    "hours": """
        when (are you|do you) open
        [what are] your (opening hours|opening times|hours)
        when do you (open|close)
        (opening hours|opening times)
        how long are you open
        * what hours are you open
        when is the park open
        what time do you (open|close)
        when do the gates (open|close)
        (what time|at what time) do the gates (open|close) [every day|each day]
        (opening hours|opening times|hours) of the (gates|main gate|whole park)
        until when can we (stay|be here)
        until what time (can|may) (we|i|visitors) (stay|be) in the park
        how late (are you|is the park) open
        when do you (lock the gates|lock up|close the park|shut the park)
        when must (everyone|we) (leave|be out of) the park
        when do we have to (be out|leave)
        what are the park's (opening hours|opening times)
        alder park (hours|opening hours|opening times|open when)
        what are (the opening hours|the opening times|the hours) of alder park
        how early (can we come in|do the gates open|do you open)
        is the park open (late|all night|24 hours|around the clock|in the evening|at night)
        (when|what time) does (the park|alder park) (close|open|shut) [in the evening|in the morning|each day]
        when can (we|people|visitors) come in
        does the park close at night
        {know} when (you are open|you open|you close|the park is open)
        your {hourswords}
        when {canwe} come [to the park|in]
        """,
    "day": """
        when are you open on {d}
        what are your (opening hours|opening times|hours) on {d}
        how long are you open on {d}
        * what hours are you open on {d}
        on {d}, when are you open
        (what|which) hours are you open (this|next) {d}
        (are you|is the park) closed on {d}
        when is alder park open on {d}
        what are the park's hours on {d}
        from when to when are you open on {d}
        (this|next) {d}, when are you open
        {hourswords} of the park {on_d}
        if {comes} {on_d}, (when|from when to when) are you open
        your {hourswords} {on_d}
        """,
    "opens": """
        (when|what time|at what time) do you open on {d}
        * how early do you open on {d}
        (when|what time) do the (gates|park gates) open on {d}
        how early can (we|i) come in on {d}
        """,
    "closes": """
        (when|what time|at what time) do you close on {d}
        until when are you open on {d}
        * how late do you close on {d}
        (when|what time) do the (gates|park gates) (close|shut) on {d}
        until what time can (we|i) stay in the park on {d}
        when must (we|everyone) be out of the park on {d}
        how late are you open on {d}
        """,
    "is_open": """
        are you open on {d}
        are you (also|still) open on {d}
        * will you be open on {d}
        do you open on {d}
        can (i|we) (come|visit you) on {d}
        (are you|is alder park) open (this|next|on a) {d}
        do the gates open on {d}
        is anyone there on {d}
        do you (guys|people) (open|work) on {d}
        {canwe} come [to the park|to you] {on_d}
        (will|would) you be open {on_d} (for us|at all|as usual)
        if {comes} {on_d}, are you open
        """,
    "prices": """
        how much is (entry|admission|the entrance|a ticket) to (the park|alder park)
        do (i|we) have to pay to (enter|come in|get in|walk around here)
        is (the park|alder park|the park itself|entry to the park) free
        what does it cost to (enter|visit|come into) (the park|alder park)
        (park|alder park) (entry|entrance) (fee|price|ticket)
        must (we|i) buy a ticket (for the park|to be in the park)
        is there an (entry|entrance) fee for (the park|alder park)
        how much does (the park|alder park) cost
        * what must we pay to walk in the park
        {canwe} walk around [the park] (for free|without paying|without a ticket)
        {know} (if the park is free|what the park costs|if we pay at the gates)
        (do you|do they) (charge|take money) at the (gates|main gate|entrance of the park)
        (do|will|must|would) (we|i|you|people) (pay|be charged|get charged) (just|only|simply) (for|to) (walking|sitting|being|looking) (about|around|down) in the park
        does (a walk|a stroll|jogging|sitting) in the park cost (anything|money|something)
        (is there|do you take) (a charge|money) for (walking|wandering|jogging) (about|around|through) the park
        """,
    "is_open_at": """
        are you [still|already] open {at_dt}
        will you [still] be open {at_dt}
        {canwe} come [in|to the park|to you] {at_dt}
        (are|will) the [park] gates [still|already] [be] open {at_dt}
        do you [still|already] let (people|visitors) in {at_dt}
        i {ends} at {t} on {d}{comma}are you still open [then]
        {event} at {t} on {d}{comma}(are you still open|can we still come in|are the gates open) [then]
        """,
    "at_time": """
        are you [still|already] open at {t}
        (are the gates|is the park) [still|already] open at {t}
        {canwe} come in at {t}
        """,
    "weekend": """
        are you open (at the weekend|on weekends|at weekends|this weekend|next weekend)
        (what are|tell me|and) your weekend {hourswords}
        when are you open (at the weekend|on weekends|over the weekend)
        {canwe} come (at the weekend|this weekend|on the weekend|next weekend)
        (what|which) hours are you open on saturday and sunday
        """,
    "closed_days": """
        are you open (every day|daily|all week|seven days a week|each day)
        (which|what) (day|days) are you closed
        are you ever closed
        do you (close on any day|have a day off|have a closing day|close during the week)
        {know} (on which days|when) you are closed
        (is the park|are the gates) (open every day|ever closed|closed on some days)
        """,
}

# Phrasings that lean on what was said before. Used without it, they are answered by asking for the place.
IT = {
    "hours": """
        when is it open
        what are (the|its) (opening hours|opening times|hours)
        [and|the] (opening hours|opening times|hours)
        when does it (open|close)
        and when (is it open|does it open|does it close)
        when can (i|we) go there
        how long is it open
        * tell me its opening hours
        * and what hours is it open
        (when|at what times) can (i|we) visit it
        so when is it open
        what time does it open
        until when is it open
        what are the hours there
        (ok|great|nice|and), when is it open
        (when|what time) (can|could) we go in
        is it open (late|early|in the evening|at night)
        at what times is it open
        when do they (open|close)
        how late is it open
        (and|so|ok) what time does it (open|close)
        can you tell me (the hours|when it is open)
        {know} (when it is open|the hours|its opening times|when it opens and closes)
        (what|which) {hourswords} (does it have|do they have)
        when {canwe} (go in|go there|visit it|get in)
        from when till when
        """,
    "day": """
        when is it open on {d}
        and when is it open on {d}
        what are (its|the) hours on {d}
        (opening hours|hours) on {d}
        how long is it open on {d}
        when can (i|we) go there on {d}
        * and what are the hours on {d}
        * tell me when it is open on {d}
        (when|how long) is it open (this|next) {d}
        and the hours on {d}
        is it (closed|shut) on {d}
        so when can we go there on {d}
        when is it open (on that day|that day) {d}
        and what time is it open on {d}
        from when to when is it open on {d}
        (and|ok and|so) on {d}, when is it open
        what about its hours on {d}
        (how late|how long) can we (stay|be) there on {d}
        what hours does it have on {d}
        {hourswords} {on_d}
        (when|what hours|how long) {canwe} (go in|go there|visit) {on_d}
        {know} (when it is open|the hours|its hours) {on_d}
        """,
    "opens": """
        [and] (when|what time|at what time) does it open on {d}
        how early does it open on {d}
        (can|could) you tell me when it opens on {d}
        * how early is it open on {d}
        when can we first get in on {d}
        how early can (i|we) (get in|go in|come) on {d}
        from when is it open on {d}
        (when|what time) do they open on {d}
        """,
    "closes": """
        [and] (when|what time|at what time) does it (close|shut) on {d}
        how late is it open on {d}
        until when is it open on {d}
        (can|could) you tell me when it closes on {d}
        * how late does it close on {d}
        * until what time is it open on {d}
        (when|what time) do they (close|shut) on {d}
        how late can (i|we) (stay|get in|come) on {d}
        till when is it open on {d}
        when do we have to leave on {d}
        """,
    "is_open": """
        [and] is it [also] open on {d}
        can (i|we) [also] (go there|visit it) on {d}
        will it be open on {d}
        do you know (if|whether) it is open on {d}
        * can you tell me if it is open on {d}
        * and will it be open on {d}
        and would {d} be ok
        is that open on {d}
        can we see it on {d}
        are they open on {d}
        (ok|and|so), is it open on {d}
        does it open on {d}
        would it be open on {d}
        {canwe} go (there|in) {on_d}
        is it (running|available|possible|an option|up and running) {on_d}
        would {d} (work|do|suit|be possible)
        are (they|people) letting visitors in {on_d}
        """,
    "is_open_at": """
        [and] is it [still|already] open [on] {d} at {t}
        is it [still|already] open at {t} on {d}
        can (i|we) go there at {t} on {d}
        will it be open at {t} on {d}
        * and can we go there on {d} at {t}
        would {t} on {d} be ok
        can we still get in at {t} on {d}
        and can we (see|visit) it [on] {d} at {t}
        (ok|so) is it open on {d} at {t}
        are they open at {t} on {d}
        would (they|it) be open on {d} at {t}
        (would|is|will) {t} on {d} (still|) (be|) (ok|fine|all right|possible|work)
        {canwe} [still] go (there|in) {at_dt}
        is it [still|already] open {at_dt}
        i {ends} at {t} on {d}{comma}(is it still open|would i still make it|can i still go)
        {event} at {t} on {d}{comma}(is it still open|would we still get in|can we still go)
        """,
    "closed_days": """
        is it open every day
        [and] (on which days|when) is it closed
        which days is it closed
        * on which day is it closed
        does it (close|shut) on any day
        is it (ever closed|closed on some days|closed some days)
        what day is it closed
        are they open every day
        (which|what) days (are|would be) (no good|bad|out of the question)[, (just|only) that one]
        is that the only day [it is shut|it is closed]
        (any|are there) other days when it's (shut|closed)
        """,
    "weekend": """
        [and] (is it open|when is it open) (at|on) the weekend
        [and] (at|on) the weekend
        and on saturday and sunday
        what about the weekend
        * how about the weekend
        is it open (this|next|over the) weekend
        what about (saturday and sunday|saturdays and sundays|weekends)
        and the weekend hours
        """,
    "way": """
        where's (it|that)
        and how do i walk there
        where do i have to go
        [and] how do (i|we) get there
        [and] where is (it|that)
        how (can|could) (i|we) (get there|find it|reach it)
        [the|and the] way
        [and] directions
        which way is (it|that)
        (can|could) you (tell|show) me the way
        what is the way there
        how do (i|we) (find|reach) it
        and how to get there
        * how would we get there
        * where do we find it
        * show me how to get there
        (cool|nice|ok|great|good), where is (it|that)
        where do i find that
        how do i get over there
        and which way do (i|we) go
        where exactly is (it|that)
        (ok|great|thanks|perfect), (how do we get there|where do we go|which way)
        where do we go
        how do i walk there
        and how (can|could) we get there from here
        where (is|would) that [be]
        which path (do we take|is it|goes there)
        can you point us there
        how do we get there and how long does it take
        where is it and how far
        (please|can you) (show|tell) us the way
        {where}
        (and|so|ok,) {where}
        {know} (where it is|how to get there|the way|how we get there)
        """,
    "distance": """
        [and] how far is (it|that) [from here|away]
        is (it|that) far [from here|away]
        how long does it take [to get there|to walk there]
        how many minutes is that
        how long is the walk
        and is it far [from here]
        * how many minutes is it from here
        * how long do we walk
        how long will it take us
        and how long do (i|we) need to get there
        how far do we (walk|have to walk)
        is it (near|nearby|close|a long walk)
        how many minutes to get there
        is that a long walk
        (ok|and|hmm), is it far
        how long to walk there
        {howfar}
        (and|so|ok,) {howfar}
        {know} how far (it is|that is|we walk)
        can {walker} (manage|walk) that{sep}{howfar}
        """,
    "prices": """
        what will it cost
        so how much
        how much for a ticket
        how much to get in
        [and] how much (is it|does it cost|is that|is the entry|is a ticket|are the tickets)
        [and] what does (it|that|a ticket) cost
        [and|the] (price|prices|tickets)
        what are the prices
        do (i|we) have to pay [there]
        is it (free|expensive)
        what do (i|we) pay
        how expensive is it
        do (i|we) need a ticket
        and what are the prices
        * and the ticket prices
        * how much do we pay there
        * what is the price
        (and|ok|so) what's the price
        how much would that be
        what do they charge
        (and|so) what do tickets cost
        is there an entry fee
        how much do they want for it
        (ok|and) what do we pay to get in
        must we pay [there]
        how much are tickets
        how much do tickets cost
        what are (your|the|their) (ticket prices|prices|fees)
        (ok|and|so), (how much is it|what does it cost)
        (is it|is that|is entry) (free|for free)
        what do you charge
        (and|so) what would we pay
        what does entry cost
        how much to go in
        (ok|hmm) and the price
        (is|are) (it|the tickets) expensive
        (what's the damage|what does it cost to get in|what do people pay|how much is a visit|how much per person)
        {know} (what it costs|how much it is|the price|the prices)
        (what would|what will|what does) a visit (cost|set us back)
        """,
    "price": """
        is there a discount for {c}
        and (as|if i am) {a}
        how much do {c} pay
        [and] how much is it for {c}
        [and] for {c}
        [and] for {a}
        what about {c}
        and {c}
        how about {c}
        [and] how much (is|for) {a} ticket
        what does it cost for {c}
        what do {c} pay
        do {c} pay (less|the same|too)
        is it cheaper for {c}
        and {a} ticket
        and what does {a} pay
        * and how much do {c} pay
        * what is it for {c}
        * and what about {a}
        and if (you are|i'm) {a}
        is it less for {c}
        what would {a} pay
        (i'm|i am) {a}, what do i pay
        do they charge {c}
        (how much|what) would {a} pay
        and for one {c1}
        do {c} get (a discount|in cheaper|it cheaper)
        is there a {c1} (price|ticket|discount)
        what's the {c1} price
        (ok|and|so) (for|what about) {c}
        is it (free|cheaper|less) for {c} [too]
        what does {a} ticket cost
        how much for {a}
        and what about {c}
        {know} what {c} pay
        (and|ok and|so) what do {c} pay
        {companion} is {a}{comma}(what does that cost|how much|what do they pay)
        (what|how much) (would|will|does) it (cost|be) for {a}
        """,
    "bill": """
        (and if|if) we are {party}
        so for {party}
        we have {party}, how much is (it|that)
        there are {party} with us
        for {party} please
        how much for {party}
        [and] for {party}
        [and] how much is it for {party}
        what about {party}
        how about {party}
        and {party}
        what (does it cost|would it cost) for {party}
        we are {party}
        {party} [please]
        what do {party} pay
        and what if we are {party}
        * so how much for {party}
        * and what do we pay for {party}
        * what is the total for {party}
        (we'd be|we would be|that would be|it's|there's) {party}
        (i'll|we'll) take {party}[, how much is that]
        so what's the total for {party}
        and in total for {party}
        ok, tickets for {party} then
        what would it come to for {party}
        (can i get|could i get|i need) tickets for {party}
        (what would|what will) {party} pay
        (no|sorry|oh), (we are|i meant|make that|it is) {party}
        (actually|wait|sorry), {party}
        and if {party} come
        (ok|great|so), (for|what about|how much for) {party}
        how much (would|will|does) {party} (pay|cost)
        we'd be {party}, how much
        what if we (are|were) {party}
        (what if|and if) (it is|it's|it were) {party}
        so what do we pay for {party}
        (and how much|how much|what) is that for {party}
        it would be {party}
        {party}, how much (is that|is it|would that be|altogether|in total)
        how much for all of us: {party}
        what's the total, we are {party}
        and (as a group of|for a family of|with) {party}
        instead for {party}
        (make it|let it be) {party} (instead|then)
        {party}{sep}{total}
        {total} for {party}
        {total}{sep}{party}
        we would (go|come) with {party}{sep}{total}
        (say|suppose|imagine|let's say) (we are|it is|there are|we bring|we come with) {party}
        {know} what {party} pay
        (just|only|it's only|it will be) {party}
        {are}
        (well|so|ok|let me see|let me count), {are}
        {are}{sep}{total}
        """,
    "settled": """
        {paying}{sep}{verdict}
        {paying}{sep}{verdict}
        (and|so|ok|good|alright|right), {paying}{sep}{verdict}
        {remark}{dot}{paying}{sep}{verdict}
        [and|so] (is|are|would|will) {m} (enough|be enough|ok|do|be ok|cover it|cover that)
        {m}{sep}{verdict}
        {changeback} from {m}
        {changeback} (if|when) (i|we) pay with {m}
        (and|ok,|then) {changeback} from {m}
        (here's|here is|here are|take|there you go,) {m}{sep}{changeback}
        (can|could) (i|we) pay (that|it) with {m}{sep}{verdict}
        (what|how much) (is|would be) left (of|from) {m}
        (do|does) {m} cover (it|that|all that|the lot)
        (how about|what about|and) if (i|we) (pay with|give you|only have|have just) {m}
        (would|will|can) (i|we) (manage|get by) with {m}
        {paying}
        {paying}{sep}(how much|what) (is|am i) (missing|short)
            (how short|how much short|how far off) (am i|are we) (with|if i have|if we have|if i only have) {m}
        (and|so|ok), how short (am i|are we) with {m}
        (our|my) (budget|limit) is {m}{sep}(does it fit|are we over|how much over|is that within it)
        (will|would) (i|we) be short (with|if we only have) {m}
        (how much|what) (do i|do we) (lack|still need) with {m}
    """,
    "withdrawn": """
        [and] if {away}
        (and|but|so|hm,) (what if|if) {away}
        what if {away}{sep}{total}
        (suppose|say|imagine|let's say) {away}{sep}{total}
        (how much|what) (is it|would it be|do we pay|does it cost|will it be) if {away}
        (oh|sorry|hm|ah|ok|wait|oh no|actually), {away}
        {away}{sep}{total}
        {away}{sep}(how much now|what now|and now|what do we pay now|what's the new total)
        {total} if {away}
        {remark}{dot}(and|but|what) if {away}
        now {away}{sep}{total}
        it turns out {away}{sep}{total}
        (bad news|change of plan|small change|one more thing){sep}{away}
        (how does it change|does it change much|what changes) if {away}
        {know} what we pay (if|when) {away}
    """,
    "uncounted": """
        and if {party} (come too|come along|join us|join us later|come after all)
        and {party}
        (what if|suppose) {party} (come too|come along|want to come|join us)
        plus {party}{sep}{total}
        (oh|ah|sorry), and {party} (too|as well)
        with {party} (too|as well|on top){sep}{total}
    """,
    "split": """
        [and] (split|divided|shared) (between|among) (the|) (two|three|four|five|2|3|4) [of us]
        (can|could) (you|we) (split|divide|share) (it|that|the bill) [between us|equally|in two|by three|among (two|three|four) friends]
        (we|i) want to (split|share|divide) (it|that|the bill)[, how much is one share|, what does each of us pay|, how much each]
        what is (my|one|each) share [of it|of that]
        (we're|we are) going halves, (how much is my half|what is half of it|how much is that)
        (how much|what) is (that|it) per (head|person) [then|on average]
        (and|so), if (we|two of us|both families|three of us) (share|split) (it|that|the bill)[, how much each]
        (and|so,|ok,) what is half of (that|it)
        divide (that|it) by (two|three|four|2|3|4) [please]
    """,
    "along": """
        {along}
        {along}{sep}{total}
        (ok|so|well|hm|let me see), {along}
        (ok|so|well|hm), {along}{sep}{total}
        """,
    "route": """
        [and] [how do i get] from there to the {p}
        and then to the {p}
        how do (i|we) get from there to the {p}
        and how far is it from there to the {p}
        and from there to the {p}
        * from there, how do we get to the {p}
        * and which way is it from there to the {p}
        and (how do we go|how do we walk) from there to the {p}
        and (after that|afterwards|then) the {p}, (how do we get there|which way is it)
        from there, (how far is|where is|which way is) the {p}
        (then|next) we want to go on to the {p}, which way
        and how far is the {p} from there
        is the {p} far from there
        (and|then|ok,) from there (on|) to the {p}{sep}{where}
        (and|then) {howfar} from there to the {p}
        (next|then|after that|afterwards) comes the {p}{comma}(how far is that from there|which way from there)
        (once|when|after) (we're|we are|i'm|we have) (through|done|finished) (with it|with that one|there){comma}how do (we|i) (carry on|go on|continue|get) to the {p}
        (and|then) (how do we carry on|how do we go on|how do we continue) to the {p}
        (afterwards|after that|later) (we|i) (go on|walk on|continue) to the {p}{comma}(which way|{howfar})
        how many minutes from there to the {p}
        """,
    "people": """
        and for {x} [people]
        how much for {x} of us
        we are {x} [people]
        so for (my family|our family|all of us)
        (for|what about) (a family|a group)
        * and what do {x} of us pay
        for {x} people
        and for {x} of us
        (and|so) for everyone
        (what|how much) for the whole family
        """,
    "more": """
        and {party} more
        plus {party}
        [and] {party} more please
        and also {party}
        (and what if|what if) {party} (join|joins|join us|joins us|come too|comes too)
        and with {party} more
        add {party}
        (oh|ah) and {party} more
        * and {party} on top
        and {more}
        (ah|sorry|ok|oh), and {more}
        {more} (please|too|as well|also)
        plus {more}
        add {more} [please]
        and {more} (too|as well|please|on top of that)
        what if {more} (join us|came along|came too|come along|want to come)
        (ok|hmm|and) (what if|if) {more} (join us|come along)
        (how much|what) (is it|would it be|does it cost) with {more}
        with {more}
        i forgot {more}
        (wait|actually|oh), {more}
        (we also have|there is also|there are also|we need) {more}
        {more} (will join|would join|want to join) us
        {join} {party} (as well|too|along|with us|along as well|on top)
        {join} {party}
        {join} {more}
        {join} {more} (as well|too|on top)
        (oh|ah|hm|right|ok), and {more} (as well|too|if possible|please)
        {more} (just arrived|turned up|have decided to come|would like to come too|are coming after all)
        (can you|could you|please) (add|include|put in) {more}
        (we|i) (forgot|left out|didn't count) {more}
        (how much|what does it cost|total) (with|if we add|including) {more}
        [and|plus] {party} (on the side|to go with it|to go with that|besides)
        (and|plus|oh and) {party} for (my friend|my wife|my {kinone}) (as well|too)
        {remark}{dot}(and|plus|add|also) {more}
        (put|throw) {more} (on top|in|on the bill)
        """,
    "joins": """
        {party} (is coming|comes|wants to come|will come|comes along) (too|as well|after all|with us)
        and {party} (too|as well|also)
        (add|plus|and then) {party}
        (and if|what if) {party} (comes|joins|came|joins us) (too|as well|along|)
        (oh|wait|sorry|ah), and {party} [too|as well]
        (now|hm,|ok,) {party} (wants|would like) to (come|join|join us) (too|as well)
        (we|i) (forgot|left out|didn't count) {party}
        {remark}{dot}(and|add|plus) {party}
        (how much|total|what does it cost) with {party} (as well|too|added|on top)
        {party} (just arrived|turned up|is here now|joins us)[{sep}{total}]
            {party} (joins us later|comes later|follows later|will be there later|joins us at the door|follows in an hour)[ too]
        (and if|what if) {party} (joins us later|comes later|comes after all|changes plans and comes|decides to come)
        {party} (comes|is coming) after all[{sep}{total}]
        (suppose|say) {party} (joins us|comes) (later|after all|as well)
    """,
    "cheaper": """
        is the {o} cheaper
        is the {o} (more expensive|dearer|less)
        [and] is that (cheaper|more expensive) than the {o}
        is it (cheaper|more expensive) than the {o}
        is it cheaper (at|in) the {o}
        * and would the {o} cost less
        (would|does) the {o} (be cheaper|cost less|cost more)
        is the {o} (pricier|less expensive)
        or is the {o} cheaper
        (would|does|will) the {o} (save us money|be easier on the wallet|cost less|come cheaper|be less expensive)
        or is the {o} (easier on the wallet|the better price|less expensive|dearer|pricier)
        how does that compare (with|to) the price of the {o}
        (would|is|does) the {o} {cheaper_}
        {remark}{dot}(would|is|does) the {o} {cheaper_}
        """,
    "nearer": """
        is the {o} (nearer|closer|further)
        is it (nearer|closer|further) than the {o}
        [and] is that (nearer|closer|further) than the {o}
        * and would the {o} be closer
        is the {o} (a shorter walk|a longer walk)
        or is the {o} (closer|nearer)
        or is the {o} (less of a walk|quicker to reach|the shorter walk|not as far)
        (would|is) the {o} (be|) (less of a walk|quicker to reach|a shorter walk)
        """,
    "back": """
        and [how do we get] back
        [and] how do (i|we) get back [from there|there]
        and the way back
        and back again
        (and|ok and) what is the way back
        how do we (walk|go) back
        [and] (the other way round|in the other direction|in reverse|vice versa|the opposite way|the same backwards)
        (and|ok, and) the same (the other way round|way back|route in reverse|in the opposite direction)
        """,
    "to_kiosk": """
        [and] how do (i|we) get back (here|to you|to the kiosk|to this kiosk)
        [and] (the way|the walk) back (here|to you|to the kiosk)
        (how far|how long|how many minutes) is it (from there|back) to (here|you|the kiosk)
        """,
    "fewer": """
        [and] (with|) {fewer}
        what if {fewer} (come|came)
        (sorry|oh|ok|actually), {fewer}
        and (what is it|how much is it|how much) with {fewer}
        we are {fewer}
        make that {fewer}
        (ok|oh|hm|sorry|right), (we are|make it|that is) {fewer}
        (and|but) what if (we have|there are|it is) {fewer}
        (how much|total|price) (with|if it's|if we are) {fewer}
        it will be {fewer} [after all]
        """,
    "swap": """
        (what about|how about|and|and with|with|and for|make that|sorry,|no,|oh,|actually,|i meant|we need) {new} instead of {old}
        not {old} but {new}
        (it's|it is|we are|we have|i have) {new}, not {old}
        {new}, not {old}
        (and if|what if) (we have|there are|it is|we are) {new} instead of {old}
        (sorry|oh|wait), not {old}, {new}
        (can you|could you|please) (change|make) (it|that) to {new} instead of {old}
        (it should be|it should have been|i should have said|better) {new} instead of {old}
        (ok|hmm|wait|no), {new} rather than {old}
        """,
    "reset": """
        make (that|it) {party} [please]
        (no|sorry|oh|wait|actually){comma}(make that|make it|i meant|it's|it is) {party}
        make (that|it) {party}, {why}
        better (make it|make that|take) {party}
        (we|i) (need|have) {party}, (not|instead of) {old}
        (it should be|let it be|let's say) {party}
        """,
    "today": """
        is it open (today|now|right now|tomorrow|tonight|this afternoon|at the moment)
        (and|is it) [still] open (today|now|tomorrow)
        when does it (open|close) (today|tomorrow|tonight)
        (when|until when) is it open (today|tomorrow|tonight)
        {canwe} go there (today|now|tomorrow|tonight)
        and (today|tomorrow|now)
        """,
    "other_day": """
        (oh|hm|sorry|no|ah){comma}(i|we) can't (make|do|manage|come on) {old} [after all]{dot}{d}
        {old} (is no good|doesn't suit us|won't work|is out|doesn't work for us|is not possible for us){comma}[what about|and|how about] {d}
        not {old} but {d}
        rather {d} than {old}
        {d} (rather than|instead of) {old}
        (we|i) have to work on {old}{comma}(so|then) {d}
        {old} won't do{dot}{d} then
        """,
}

# Bits of a question. What they mean depends on the question before.
ELLIPSIS = {
    "day": """
        [and] on {d}
        and {d}
        {d}
        what about [on] {d}
        how about [on] {d}
        and what about {d}
        [and] (if i come|if we come) on {d}
        what (is it|are they|are the hours) like on {d}
        * and how about {d}
        * and if it is {d}
        (no|sorry|oh|wait), (i meant|i mean|on) {d}
        and (this|next|coming) {d}
        (ok|so|hmm) and on {d}
        then {d}
        (ok|great|thanks), and [on] {d}
        and what is it on {d}
        (sorry|no|oh), {d}
        (sorry|no|oh|wait|actually) (i mean|make that|not that day,) {d}
        or [on] {d}
        and if (i|we) (came|come|went) on {d}
        would {d} be (better|different|the same)
        is it the same on {d}
        what if we come on {d} [instead]
        and [for] {d}, please
        same for {d}
        {remark}{dot}{d}
        {remark}{dot}and {d}
        {remark}{dot}(what about|how about|and on|and what about|and) {d}
        {d} then
        {on_d}
        (is|would be|would) {d} (any different|better|any better|the same|be better)
        (maybe|perhaps|or rather|and maybe) {d}
        let's (try|say|take) {d}
        {remark}{dot}(how about|what about|and) (another day|some other day|the day after|a different day), {d}
        (how about|what about|and) (the day after|a day later|the next day), {d}
        """,
    "time": """
        [and] at {t}
        what about [at] {t}
        how about [at] {t}
        and (if i come|if we come) at {t}
        * and what about {t}
        (no|sorry|oh|wait), at {t}
        or at {t}
        and (by|around) {t}
        can (we|i) [still] (get in|be let in|get inside) at {t}
        can (we|i) come at {t}
        (would {t} be|is {t}) (ok|possible|fine)
        would {t} still work
        what if (we|i) (come|arrive|get there|turn up) at {t}
        (is it|will it be|are they) [still|already] open at {t}
        (ok|and|so|hmm), (is it open|can we come|are they open) at {t}
        we (would|could) (be there|arrive|get there) at {t}
        and is {t} (ok|fine|possible)
        could (we|i) come (at|around|by) {t}
        can we get in at {t}
        (and|so) would {t} [still] be (all right|ok|alright|possible|fine|too bold)
        (say|maybe|perhaps|let's say|or) [at] {t}
        {remark}{dot}(and|what about|how about|and at) {t}
        would we [still] get in (at|by|around) {t}
        (make that|or rather|rather) {t}
        i can't (come|be there|make it) before {t}{comma}(is that ok|is it still open|does that work)
        """,
    "place": """
        [and] the {p}
        what about the {p}
        how about the {p}
        and what about the {p}
        and (for|at) the {p}
        [and] {p}
        i mean the {p}
        the {p} please
        and what is it for the {p}
        * and how about the {p}
        what is it (at|for|in) the {p}
        (and|so) the same for the {p}
        and now the {p}
        what (would it|will it) be for the {p}
        * and how is it at the {p}
        (no|sorry|oh|wait), the {p}
        (no|sorry|oh|wait), i (meant|mean) the {p}
        or the {p}
        (ok|hmm) and the {p}
        same question for the {p}
        and [what of] the {p} then
        (ok|great|thanks|hmm ok), and the {p}
        and how is it (for|with) the {p}
        is it the same (at|for) the {p}
        and what of the {p}
        (sorry|no|oh) not that, the {p}
        and if we go to the {p} [instead]
        what about the {p} (then|instead)
        (and|or) {p}
        same for the {p}
        (now|next) the {p}
        could you tell me the same about the {p}
        would the {p} be (any different|different|better)
        {remark}{dot}the {p}
        {remark}{dot}(what about|how about|and for|and|now) the {p}
        (let's|we could|we might) (try|take|do) the {p} (instead|then)[{sep}what about that]
        (is|are) (that|it|things) (different|any better|the same) (at|for) the {p}
        (maybe|perhaps|or rather) the {p}
        """,
}

# Questions whose answer never changes. {n} and {v} in `refuse` are filled from strangers.py.
PLAIN = {
    "greet": """
        (hello|hi|hey|hi there|hello there|good morning|good afternoon|good evening|good day|greetings|hiya)
        (hello|hi|hey) (kiosk|computer|you|robot|friend)
        * hello, good morning
        * hey there
        (hi|hello|hey) (everyone|mate|dear kiosk|you there|there kiosk)
        (morning|afternoon|evening|howdy|good day to you)
        (hello|hi|hey|good morning|good afternoon) (to you|again|dear kiosk|park|alder park|little kiosk)
        (hi|hello|hey), (nice to meet you|anybody there|is anyone there|can you hear me)
        """,
    "thanks": """
        (i|we) thank you
        (thanks|thank you) for (that|everything|the answer|telling me)
        (cheers|thank u|tnx|merci)
        (thanks|thank you|thank you very much|thanks a lot|many thanks|thx|ty|thank you so much)
        (great|ok|okay|perfect|good|nice|wonderful|super), (thanks|thank you)
        thanks for (your|the) help
        (thanks|thank you), that (is|was) (helpful|very helpful|great|all)
        * thank you for the information
        * wonderful, thank you very much
        (that's|that is) (very|so|really) (kind|helpful|nice)[, thank you|, thanks]
        (brilliant|cool|awesome|lovely|excellent), (thanks|thank you|cheers)
        (thanks|thank you) (for your time|mate|my friend|kiosk|again)
        (thank you|thanks) (for your help|for helping|for all the information|for the info|kindly|ever so much|indeed|very kindly)
        (thanks|thank you), (that helped a lot|you helped me a lot|you are very kind|you were very helpful|that's all i needed|good to know)
        you (have been|were|are) (very|so|really|most) (helpful|kind)[, thanks|, thank you]
        (that|this) (helps|helped) (a lot|me a lot|us a lot|very much)[, thanks|, thank you]
        i (really|) appreciate (it|that|your help)
        (many thanks|thanks so much|thanks a bunch|thanks a million|much appreciated|thank you so so much) [for that|for your help|for everything]
        (great|good|perfect|wonderful|lovely|brilliant), (thank you so much|many thanks|thanks a lot|thanks for the help|that helps)
        (what a help|you saved us|you saved my day|you're a star|you're a lifesaver), (thanks|thank you)
        (ok|okay|alright|right), thanks (a lot|for that|for the answer|very much)
        (we|i) (are|am) (very|so) grateful
        (no|nothing|nothing else), (thanks|thank you)
        no thanks
        no thank you, that is all
        (thanks|thank you|cheers|many thanks){comma}(that was quick|you're the best|we found it|we'll go there now|\
            that's all)
        (very kind|how kind|so kind) of you[, thanks|, thank you]
        (you've|you have) been (a great|a big|such a|of great) help
        (you've been|you are|that was) (ever so|so|very|most) (kind|helpful|good)
        (i'm|we're) (ever so|so|very|most) (grateful|obliged) [to you]
        (splendid|wonderful|marvellous|brilliant){sep}(thank you|thanks|i'm grateful|much obliged)
        """,
    "bye": """
        (i have|we have) to go [now]
        until next time
        have a (good|great) day
        (bye|goodbye|bye bye|see you|see you later|good night|farewell|have a nice day|good bye)
        (ok|okay|thanks), (bye|goodbye|see you)
        that (is|was) all
        * ok see you later
        (we|i) (are off|am off|have to leave|must go) [now]
        (cheerio|ciao for now|take care|so long)
        (that's|that was) (everything|all i needed|it), (bye|goodbye|thanks bye)
        (ok|okay|thanks|great), (we are off|have a good one|see you tomorrow)
        (bye|goodbye|see you), (have a nice day|and thanks|kiosk|thank you|until next time)
        (thanks|thank you) and (bye|goodbye|have a nice day)
        (i'm|we're) (done|leaving|off now|going now)[, bye]
        (we|i) (have to|must|should|will) (go|leave|run) (now|home|on)[, bye|, goodbye]
        (bye|goodbye|see you|so long|farewell){comma}(and thanks|take care|have a good one|until tomorrow|we'll be back)
        (right, we're off|we're off|off we go|we have to run|that's us done)[{sep}(bye|see you|goodbye|cheerio)]
        """,
    "who": """
        are you (chatgpt|siri|alexa|gemma|google)
        who is talking
        who runs this kiosk
        who are you
        what are you
        what is your name
        (are you|is this) (a robot|a human|a computer|a person|an ai|a machine|real|alive)
        who (am i talking to|is this|made you|built you)
        what's your name
        tell me about yourself
        * am i talking to a robot
        * do you have a name
        (are you|is that) (real|a real person|a human being|a bot|some kind of robot)
        do i (talk|speak) (to|with) a (human|machine|person|bot)
        (where am i|where are we) [now|here]
        what (place|park) is this
        (who|what) (exactly|on earth) are you
        are you (a program|a chatbot|a language model|software|a machine|gpt|a big computer)
        introduce yourself
        (can|could) you introduce yourself
        (what|which) (model|ai|llm|software|program) are you
        are you (an llm|a gemma model|an assistant|some kind of ai|running locally)
        """,
    "can": """
        what do you do
        what can you help [me] with
        what are your (functions|features|skills)
        how can i use (you|this)
        (menu of questions|options|instructions)
        show me what you can do
        what can you (do|tell me|answer)
        what can i ask [you]
        how can you help me
        what do you know
        help
        (what|which) questions can (i ask|you answer)
        i need [some] help
        can you help me
        what are you (good for|able to do)
        what is this
        how does this work
        i have a question
        (can|may|could) i ask [you] [something|a question]
        * what kind of questions can i ask you
        * could you help me please
        what (sort of|kind of) (things|help|information) (do you know|can you give|do you have)
        (can|could) you (assist|help) (us|me) [with something]
        (could|can) you help (us|me) (out|a bit|with our visit)
        what (information|help) (do you have|can you give us|do you offer)
        what can you tell (me|us) [about the park|about alder park]
        how can you (assist|help) (us|me)
        what are (you here for|your abilities)
        what (do|can) you know about (the park|alder park|this park)
        (i|we) (need|could use) (some|a little|a bit of) (help|information|assistance)
        tell me what you (know|can do)
        """,
    "mood": """
        (how's it going|how are things)
        are you having a (good|nice) day
        how are you [today|doing]
        how do you do
        how is it going
        are you (ok|well|fine)
        what's up
        * how are you feeling
        (how are you|how do you feel) (this morning|tonight|doing today|my friend|kiosk)
        (hi|hello|hey), how are you [today|doing]
        (are you|is everything) (fine|good|alright|all right) [today]
        """,
    "okay": """
        (amazing|awesome|lovely|brilliant|excellent|fantastic|right|exactly|correct|alright|k)
        (ok|okay|good|great|nice|perfect|cool|fine|i see|wonderful|all right|super|very good|yes|no|yeah|nope|sure)
        that is (good|great|nice|cool|helpful)
        (you are|you're) (nice|great|helpful|smart|good)
        good to know
        (ah|oh|aha|well), (i see|ok|good|nice)
        (that's|this is) (good|great|nice|fine)
        i (understand|got it|like that|like it)
        * oh, that is nice
        * that is good to know
        (ok|okay|good|alright), (got it|understood|fine|we will do that|that works|makes sense)
        (wow|nice one|neat|splendid|sounds good|sounds great|fair enough|no problem|never mind)
        (that|it) (sounds|is) (good|great|fine|perfect|lovely)
        (that's|it's) (cheap|expensive|too expensive|not cheap|a lot|good value)
        yes (please|sure|of course|indeed)
        (absolutely|of course|certainly|yep|yup|indeed|true)
        """,
    "see": """
        what's the best thing to (see|do) here
        what (would you|do you) (suggest|recommend|advise)
        (i am|we are) (new|here for the first time), what should (i|we) see
        (what's|what is) there to see
        which attractions are good
        show me around
        what (is there|can i do|can we do|can you do|can i see|can we see) (here|in the park|in alder park)
        what is there to (see|do|visit) [here]
        (what|which) (attractions|sights|places|buildings) (are there|do you have|can i visit|can we visit)
        what can (i|we) visit
        what should (i|we) (see|visit|do)
        list [all] [the] (attractions|places|sights)
        show me the attractions
        what is (interesting|worth seeing) (here|in the park)
        * what attractions does the park have
        * what do you recommend to see here
        what (is|are) the (highlights|main attractions|best attractions|main sights)
        (we have|we've got|i have) (two hours|an hour|all day|the whole day|the afternoon|a few hours), what (should|can) (we|i) (see|do|visit)
        what (shouldn't|should) (we|i) (miss|not miss) [here]
        (any|some) (tips|recommendations|suggestions) [for us|what to see]
        what is there in (this|the) park
        anything (fun|interesting|good) to (do|see) [here]
        we are (bored|first time here|tourists), what (can|should) we (do|see)
        what (are|is) there (for tourists|for visitors|for us) (to see|here)
        what (are the|do you have for) (attractions|sights) [in the park|here]
        (give|tell) (me|us) (a list of|all) [the] (attractions|places|sights)
        what is worth (a visit|seeing|visiting) [here|in the park]
        which (things|attractions|places) (can|could|should) (i|we) (visit|see) [here|in alder park]
        what can (visitors|people|you|one) (do|see|visit) (here|in the park|in alder park)
        (we|i) just (arrived|got here), (what should|what can) (we|i) (see|do|visit) [first]
        what (sights|things to do) does (alder park|the park|this place) (have|offer)
        where (should|do) (we|i) (start|begin|go first)
        what do you (recommend|suggest) [we see|for a first visit|for tourists|to do|for us]
        what (do|should) (tourists|visitors|people) (see|visit) here
        {know} what (there is to see|we can visit|we should see|is worth a visit|attractions there are) [here]
        what {canwe} (see|visit|do|look at) (here|in the park|in alder park|in this park)
        (we|i) (just arrived|are new here|are here for the day|have never been here){comma}(what is there|what should \
            we see|what can we visit)
        {wewant} (see something nice|see it all|have a good day){comma}(what is there|what do you recommend|what can \
            we visit)
        (what|which) (sights|attractions|places|buildings) (does|would) (your park|the park|alder park) (offer|\
            recommend) [us]
        (name|list|give us|show me) (your|all the|the) (attractions|sights|places to visit|things to see)
        """,
    "eat": """
        what (should|can) (i|we) eat
        do you have [vegan|vegetarian|good|hot|cold] food
        where's the food
        can (i|we) eat (here|in the park)
        i need (food|a drink|something to eat|lunch)
        where can (i|we) (eat|have lunch|have dinner|have breakfast|get food|eat something|get something to eat|drink something)
        is there (food|something to eat|a place to eat) [here|in the park]
        (i am|i'm|we are|we're) (hungry|thirsty)
        food
        where is food
        (lunch|dinner|breakfast)
        i want to eat [something]
        where can (i|we) get a drink
        * is there somewhere to eat
        * we want to have lunch, where can we go
        (we're|i'm|the kids are|everybody is|i am) (starving|so hungry|hungry|very hungry)
        anywhere to (grab a bite|eat|get lunch|get some food|have a snack)
        (where's|where is) (a|the) (good|nice) place to eat
        where can (we|i) (grab|get) (a bite|a snack|some food|lunch|something to eat|dinner)
        (i|we) (want|need|would like|could do with) [to have|to get|to grab] (lunch|dinner|breakfast|a bite|a snack|something to eat|a meal)
        where (is|are) the (food|restaurants|places to eat|nearest food)
        (do you have|have you got) (anything|something|somewhere) to (eat|drink) [here|around here|in the park]
        (we are|i am|we're|i'm|my kids are|the family is) (really|very|so|terribly) (hungry|thirsty)[, where can we go|, where do we go|, what can we do|, any tips]
        where do (people|visitors|you) eat (here|in the park)
        what are the (options|places) (for|to have) (lunch|dinner|food|a meal)
        my (stomach|tummy|belly) is (rumbling|empty)[, where can i eat]
        (food|lunch|dinner|breakfast|snacks), where
        (our|my|the) (kids|stomachs|stomach|children|family|group) (are|is) (starving|hungry|empty|rumbling|very \
            hungry){comma}(where to|any ideas|food)
        where {canwe} (eat|have lunch|have dinner|grab a bite|get food|get a snack|sit down for a meal|have something \
            warm)
        {know} where (we can eat|to eat|there is food|one gets lunch|we could have dinner|to get a bite)
        {wewant} (eat|have lunch|have dinner|grab a bite|get some food){comma}(where|where can we go|where is that \
            possible|any places)
        (is there|are there) (anywhere|any place|some place|places) (to eat|for lunch|with food|for dinner|for a bite)
        (what|which) (places|options) (are there|do you have) (to eat|for food|for lunch|for a meal|for hungry people)
        """,
    "kids": """
        (my|our|the) (kids|children) are bored
        (i am|we are) here with (kids|children|a child|small children)
        (my|our) (son|daughter) (is bored|wants to play)
        what is (interesting|exciting) for (kids|children)
        do you have anything for (kids|children)
        what is there for (children|kids)
        what can (children|kids|we with kids|we with children) do [here]
        what is (good|fun|nice) for (children|kids|families|small children)
        (activities|attractions|something) for (children|kids|families)
        what do (children|kids) like [here]
        where can (children|kids|my kids|our children) play
        what can i do with (children|kids|my son|my daughter) [here]
        * what do you have for kids
        * is there something fun for children
        what (would|will) (my|our) (kids|son|daughter|children|little ones) (like|enjoy)
        (got|is there|do you have) anything for (little ones|toddlers|small kids|young kids|teenagers)
        (we have|i have|we've got) (two|three|small|young) (kids|children) with us, what (is good for them|can they do|should we do)
        (what|which places) (would you|do you|can you) (suggest|recommend) (for|with) (kids|children|a five year old|small children|a family)
        (my|our) (son|daughter|kid|little girl|little boy) (is|gets) bored[, what can we do|, what is there for children]
        which (attractions|places) are (good|best|fun|suitable) (for|with) (kids|children|families|little ones)
        what (attractions|things) do (kids|children) (love|enjoy|like most)
        where (should|can) (i|we) (go|take them) with (kids|children|two kids|our children|my kids)
        (is there|anything) (something|) (for|fun for|nice for) (my kids|our kids|the kids|our little ones|my little girl)
        (entertainment|fun) for (kids|children|the little ones)
        (what|which places|which attractions) (would|could|might|will) (a|my|our) {child} (like|enjoy|love|have fun \
            with)
        (where|what) (can|could|should) (a|my|our) {child} (play|do|have fun|run about|see)
        {wewant} (amuse|entertain|do something with) (the kids|our children|two bored boys|a class of \
            kids){comma}(any ideas|what's good)
        (our|my|the) (kids|children|boys|girls|nieces) (are bored|are getting restless|want fun|need something to \
            do){comma}(any ideas|what now)
        (is there|do you have|have you got) (fun|something|anything|stuff|entertainment) for (a|my|our) {child}
        {know} what (kids|children|families|little ones) (like|enjoy|can do|love) here
        (good|nice|best|fun) (places|things|attractions) (for|with) (kids|children|a family|small ones)
        what (would|could) (bored|tired|restless) (kids|children) do here
        my (twins|kids|boys|girls) (are bored|need some fun|want action){comma}(what is there for them|any ideas)
        """,
    "free": """
        (i have|we have) no money, what can (i|we) do
        can (i|we) do something for free
        free attractions
        what is free [here|in the park]
        (is anything|is something|is there anything) free [here]
        what can (i|we) (visit|see|do) for free
        (which|what) (places|attractions) are free
        what costs nothing
        * is there something we can see for free
        * which attractions cost nothing
        (is there|do you have|got) anything (that is free|that costs nothing|that's free)
        what (can|could) we do without (paying|money|tickets)
        (what|which things) (is|are) (free|free of charge|for free) [here]
        (what|where) can (we|i) (see|go|do) (for nothing|without a ticket|without tickets|without spending money)
        (i'm|we're|i am|we are) (broke|out of money), (what can we do|what is free|anything free)
        which (places|attractions) don't (cost anything|need a ticket|charge)
        are there (free|any free) (attractions|places|things)
        (what|which places|which attractions) {canwe} (see|visit|do) (for free|without paying|for nothing|without a \
            ticket|with no money)
        {know} (what is free|which places are free|what costs nothing|if anything is free)
        (we have no money left|our budget is zero|i spent all my cash|we are poor students){comma}(what is free|what \
            costs nothing|anything for free)
        (is|are) (anything|some places|any attractions|something) (free|free of charge|for nothing|without an entry fee)
        """,
    "cheapest": """
        (what|which) is the cheapest (attraction|place|ticket)
        (what|which) (attraction|place) is [the] cheapest
        what costs the least
        where is it cheapest
        what is the cheapest
        * which ticket is the cheapest
        (what's|where is) the (cheapest|lowest) (price|thing|attraction|place) [here|to visit]
        which place (costs|is) the least [expensive]
        what's (your|the) cheapest (ticket|attraction|place to visit)
        (which|what) (attraction|ticket) (is|would be) the (least expensive|most affordable|lowest in price)
        (we are|i am|we're) on a (tight|small) budget, what is the cheapest [attraction|place|ticket]
        where do (we|i) pay the least
        (which|what) has the lowest (price|entry fee)
        the cheapest (attraction|ticket|place) [please]
        (which|what) (attraction|ticket|place) (has the lowest price|is easiest on the wallet|costs us the least|is \
            the best for a small budget)
        {know} (which attraction is the cheapest|the cheapest attraction|what costs least|where tickets are cheapest)
        (where|at which attraction) {canwe} (pay the least|get in cheapest|spend the least|get the cheapest ticket)
        (your|the) (lowest|cheapest) (ticket|entry|admission|price){sep}(which attraction|where|what is it)
        which attraction (asks|takes|costs|charges) (us|) (the least|least)
        which (of your attractions|one|sight) (is|comes) (cheapest|kindest to the purse|easiest on the wallet)
        """,
    "dearest": """
        (what|which) is the most expensive (attraction|place|ticket)
        (what|which) (attraction|place) is [the] most expensive
        what costs the most
        * which ticket is the most expensive
        (what's|where is) the (most expensive|highest) (price|thing|attraction|place) [here|to visit]
        which (attraction|place) costs the most
        what's (your|the) (most expensive|dearest|priciest|costliest) (ticket|attraction|place to visit)
        which (attraction|place|ticket) is the (dearest|priciest|costliest)
        which of (your|the) (attractions|places) is the (dearest|priciest|costliest|most expensive)
        where do (we|i) pay the most
        (which|what) has the highest (price|entry fee)
        the (priciest|dearest|most expensive) (attraction|ticket|place) [please]
        (which|what) (attraction|ticket|place) (is|would be) the most (costly|expensive) (one|of all)
        (is the|which is your) (priciest|most expensive) attraction
        (which|what) (attraction|ticket|place) (has the highest price|is hardest on the wallet|costs us the most|is \
            the priciest of all)
        {know} (which attraction is the dearest|the most expensive attraction|what costs most|where tickets cost the \
            most)
        (your|the) (highest|dearest|most expensive) (ticket|entry|admission|price){sep}(which attraction|where|what \
            is it)
        """,
    "rain": """
        (what do you|what would you) (suggest|recommend) (for a rainy day|when it rains|in the rain|for a rainy afternoon)
        is there something to do in the rain
        rainy day
        what if it rains
        what can (i|we) do (when|if) it rains
        what is there to do (in the rain|when it rains|on a rainy day|in bad weather)
        it is raining, (what can i do|what can we do|where can i go|where can we go)
        (what|which) (attractions|places) are good (when it rains|in bad weather|in the rain)
        where can we go if it rains
        * it rains, what can we visit
        * what do we do in bad weather
        (it's|it is) (pouring|raining|wet|awful weather) [outside], (what is there to do|what now|where should we go|any ideas)
        what (do|can) we do (in|on) (this weather|a wet day|a rainy day|such bad weather)
        (where|what) (can|could|should) (we|i) (go|do) (when|if|in case) it (rains|is raining|starts to rain|is wet)
        (what|which places) (is|are) (good|nice|best) (for|on) a (rainy|wet) day
        (it looks like rain|it started to rain|it's wet outside|the weather is bad), (what can we do|where can we go|what do you suggest|where to now)
        (any|some) (ideas|tips) for (bad weather|a rainy day|rain)
        (what|which attractions) (is|are) (indoors|inside|under a roof)
        where (is it|can we stay) dry
        (is there|anything) (something|) to do indoors
        (it's|it is) (raining|pouring|drizzling|wet|stormy|bucketing down){comma}(what can we do|where can we go|any \
            ideas|what now)
        (if|when|in case|suppose) (it rains|it pours|the weather is bad|we get rain|it is wet|there's a \
            storm){comma}(what can we do|where to)
        (where|what) (should|could) (we|i|visitors) (go|do|see) (in the rain|on a wet day|when it pours|in bad \
            weather)
        (we forgot our umbrellas|we hate getting wet|the sky looks dark|rain is coming){comma}(what is good in the \
            rain|where do we stay dry)
        {know} what (to do|we can do|one can visit) (in the rain|when it rains|in bad weather)
        (something|anything|activities|places|attractions) (indoors|under a roof|for rainy days|for a wet afternoon)
        (it's pouring|it pours|the sky is grey|here comes the rain|it started to rain){sep}(where to|what now|what's under a roof|any ideas)
        what (is|have you got) under (a roof|cover|one roof)
        """,
    "menu": """
        what (is|'s) on the menu
        what does the cafe (have|sell|offer|serve)
        what can (i|we) (eat|drink|order|buy|have) (at|in) the cafe
        [the] menu
        cafe menu
        (show|tell|give) me the menu
        what do you have (at|in) the cafe
        * what food does the cafe have
        * can you show me the menu of the cafe
        what (drinks|cakes) (do they|does the cafe) (have|serve|sell|do)
        what (can|could) (i|we) (get|order) to (eat|drink) at the cafe
        what kind of (food|drinks|snacks) (do they|does the cafe) (have|sell|serve)
        what do they (serve|sell|have) (at|in) the (cafe|coffee shop)
        what (could|can) (we|i) (eat|drink|have|order|get) in the (cafe|coffee shop)
        (the|your) (cafe menu|food menu|menu of the cafe)
        what's (on offer|to eat) at the cafe
        what {canwe} (eat|drink|order|have) (at|in) the (cafe|coffee shop)
        {know} what (the cafe sells|is on the menu|they have in the cafe|one can eat in the cafe|the coffee shop serves)
        (what|which) (food|drinks|dishes|cakes and drinks|hot drinks|snacks) (does|do) (the cafe|they in the cafe) \
            (offer|sell|serve)
        """,
    "goods": """
        what can (i|we) (buy|get) (at|in) the (gift shop|shop)
        what does the (gift shop|shop) (sell|have|offer)
        (do you|does the shop) (have|sell) souvenirs
        souvenirs
        where can (i|we) (buy|get) (souvenirs|a souvenir|gifts|presents|a gift)
        what do you have in the gift shop
        * what souvenirs can we buy
        * which things does the gift shop sell
        what (souvenirs|gifts|things) (are there|do you have|can one buy) [in the gift shop|in the shop]
        (i|we) (want|need|would like) [to buy] (souvenirs|a souvenir|a present|a gift|some gifts)
        what's (in|on sale in) the (gift shop|shop|souvenir shop)
        what (kind|sort) of (things|souvenirs|gifts) (does the shop|do they) (sell|have)
        (is there|do you have) a (souvenir|gift|present) (for my mother|for my friend|to take home)
        what {canwe} (buy|get) (at|in) the (gift shop|souvenir shop|shop)
        {know} what (the gift shop sells|souvenirs there are|one can buy in the shop|they have in the gift shop)
        (i|we|my {kinone}) (need|needs|want|wants) (a present|a souvenir|something to take home|a little \
            gift){comma}(what is there|what do you sell|any ideas)
        """,
    "wifi": """
        (is there|do you have|have you got) [free] (wifi|wi-fi|internet|wlan|a wifi network)
        (what is|tell me) the (wifi|wi-fi|internet) (password|network|name)
        (wifi|wi-fi|internet|wlan) [password]
        how do (i|we) (connect to|get|use|join) the (wifi|wi-fi|internet)
        can (i|we) use the (internet|wifi) [here]
        does the (park|museum|cafe) have (wifi|internet)
        is the (wifi|wi-fi|internet) free
        * which wifi network can i use
        * do i need a password for the wifi
        (any|got|have you) [free] (wifi|wi-fi|internet) [here]
        (what's|whats) the (wifi|wi-fi) (password|name|code|called)
        how do (i|we) get online [here]
        my phone has no internet, is there wifi
        (do you|does alder park|does the park) (have|offer|provide) [free|any] (wifi|wi-fi|internet)
        (how|where) do (we|i) (log in to|log on to|sign in to|find) the (wifi|wi-fi|internet)
        (what's|what is) the (network|wifi|wi-fi) (called|name|password) [here|please]
        (is there|does the) (a|) (password|code|login) for the (wifi|wi-fi|internet)
        (i|we) (need|want) (wifi|internet|to go online|the wifi code)
        (can|could) (i|we) (get|have) (the wifi password|wifi|internet access) [here]
        is there (wifi|internet) and (do i need|is there|what is) (a|the) password
        (my|the) (phone|data plan) (has no signal|doesn't work here), is there (wifi|internet)
        (is|would) (there|) (internet|wifi|wi-fi|wireless) (here|in the park|available|in the cafe) [for visitors|for \
            guests]
        (how|where) {canwe} (get online|use the internet|go on the web|check my mail|check our emails|surf the web)
        {know} (the wifi password|the wifi name|if there is wifi|if there is internet|how to get online|the name of \
            the network)
        {wewant} (go online|check my mail|send photos home|use the internet|upload a picture){comma}(is there wifi|how)
        (my|our) {kinone} needs (internet|wifi|to get online|to check mail){comma}(is there wifi|how does that work|\
            any network)
        (does|will) the (wifi|internet|wi-fi) (cost anything|need a password|cost extra|work everywhere)
        (no signal on my phone|i have used up my data){comma}(any wifi|is there wifi)
        """,
    "dogs": """
        (can|may) (i|we) bring (my|our|a|the) (dog|dogs|pet|cat|pets|puppy)
        are (dogs|pets|animals) (allowed|welcome|permitted) [here|in the park]
        (is my dog|are dogs) (allowed|welcome) [inside|in the museum|in the park|here]
        (dogs|dog|pets)
        i have a dog [with me], (is that ok|can he come|may i bring it|can i come in)
        do you allow (dogs|pets)
        can my dog (come|come with me|come in)
        * is it ok to bring a dog
        * may dogs come into the park
        (can|may|could) (i|we) (come|visit|walk around) with (my|our|a) (dog|dogs|puppy|pet)
        is it (ok|okay|allowed|fine|alright) (if i bring|to bring) (my|our) (dog|puppy|pet)
        (my|our) dog is (with us|with me|here), (is that ok|is that a problem|can he come in)
        do (dogs|pets) have to be on a (lead|leash)
        (can|may|could) (i|we) (take|bring|bring along|bring in|walk) (my|our) ({dog}|{dog}s|dog|dogs)
        is (my|our) {dog} (welcome|allowed|ok|permitted) [here|in the park|inside]
        are {dog}s (allowed|welcome|ok) [here|in the park|in the museum]
        (i|we) have a [little|small|big|old] {dog}[ with us], (is that ok|can it come in|may we come in|is that a problem|can we bring him)
        (what about|how about) (dogs|my dog|our {dog}|my {dog})
        (can|may|could) (my|our) [small|big|old|sweet] {dog} (come in|come with us|join us|come too|run around|go inside|enter)
        (does|must) (my|our) (dog|{dog}) (have to|need to|) (be|stay|walk) on a (lead|leash)
        are (dogs|pets|animals) allowed and (do they need|must they have) a (lead|leash)
        (my|our) {dog} (wants to come|is with us|is waiting outside)[, is that ok|, is he allowed in|, can she come in]
        (dog|{dog}) (allowed|ok|welcome)
        is this (park|place) dog friendly
        do you (let in|accept|welcome) (dogs|{dog}s|pets)
        (will|would|is) (our|my|a) {dog} (be a problem|be a nuisance|be welcome|be allowed|be ok|get in|disturb anyone)
        (can|may|could|is it ok if) (our|my) {dog} (come|join us|come in|come along|go in|stay with us)
        {wewant} (bring|take) (our|my|a) ({dog}|dog|puppy){comma}(is that ok|any problem|are there rules|is that \
            allowed)
        {know} (if|whether) ({dog}s|dogs|pets|four-legged friends) (are allowed|can come in|are welcome|may enter)
        (our|my) {dog} (is very well behaved|never bites|goes everywhere with us|is a puppy){comma}(may he come|can \
            she come in)
        (what|which) rules (are there|do you have) for (dogs|{dog}s|dog owners|pets)
        (must|should|do) (i|we) (leave|keep|tie) (our|my) {dog} (outside|in the car|on a lead|at home)
        (our|my) (dog|{dog}) and (the museum|the cafe|the buildings){sep}(ok|allowed|possible)
        (where|in which places) (is|are) (dogs|my {dog}|pets) (allowed|not allowed|welcome)
        travelling with (a|our|my) {dog}{comma}(is that alright|can he come in|is that a problem)
        (must|does) {name}, (our|my) {dog}, (stay|have to stay) (outside|in the car|at the gate|at home)
        (what about|how about|and) {name}, (our|my) {dog}
        """,
    "wheelchair": """
        is (the park|it|everything|the museum|the aquarium) (accessible|wheelchair accessible|barrier free|step-free)
        can (i|we) (get around|visit|come) (with|in) a wheelchair
        wheelchair [access]
        i (use|am in|need) a wheelchair
        (my mother|my father|my husband|my wife) (uses|is in) a wheelchair, (is that a problem|can we visit)
        is there (a lift|an elevator|a ramp|wheelchair access)
        are there (steps|stairs|lifts|ramps)
        * is wheelchair access possible
        * can people in a wheelchair visit everything
        (my|our) (grandma|grandpa|mother|father|son|mum|dad|friend) (is in|uses|needs|has) a wheelchair[, can we visit|, is that ok|, what can we see]
        are there (stairs|steps) (everywhere|in the buildings|anywhere)
        which (buildings|places) are (wheelchair accessible|accessible|barrier free|step free)
        (can|could) (my|our) (mother|father|grandma|grandpa|friend|son) (in a wheelchair|with a wheelchair) (visit|see|enter|get into) (everything|all buildings|the buildings|the museum)
        is (everything|the whole park|alder park) (accessible|suitable) (for|with) (wheelchairs|a wheelchair|wheelchair users)
        (i|my mother|my father|my wife) (can't|can not|cannot) (climb|use|walk up) (stairs|steps)[, what can we visit|, is that a problem|, where can we go]
        (where|which buildings) can (i|we) (go|enter|visit) with a wheelchair
        (do you have|are there|is there) (disabled access|step-free access|lifts everywhere|ramps)
        (i|my grandma|my mother) (am|is) (disabled|on crutches)[, is the park accessible|, can we visit everything]
        (is|are) (the buildings|the attractions) (accessible|step free|barrier free)
        (my|our) {kinone} (is in a wheelchair|uses a wheelchair|can't do stairs|cannot climb steps|walks on \
            crutches){comma}(which buildings are ok|where can we go|any problem)
        {know} (if|which) (everything|buildings|the museum|the park|places) (is accessible|are accessible|can be \
            reached with a wheelchair|are step free)
        {canwe} (get around|visit everything|get in everywhere) (with|in) (a wheelchair|an electric wheelchair|my \
            wheelchair)
        (how|what) (accessible|barrier free) is (the park|everything|alder park|the museum)
        (are there|will we meet|do i have to climb) (stairs|steps) (in the buildings|anywhere|in the museum|on the way)
        """,
    "park_car": """
        where (can|do|should|may) (i|we) park [my car|our car|the car|here]
        (i|we) came by car, where (can|do) (i|we) park
        (i am|we are) looking for [a] parking [space|place|spot]
        is there parking [here|nearby|for cars]
        where is parking
        where to park
        where (can|do) (i|we) leave (my|our|the) car
        * where could we put our car
        * is there somewhere to park a car
        (where's|where is) (the parking|parking|a place to park)
        (we've|we have|i've|i) (arrived|come|came) by car, where (do|can|should) (we|i) (leave it|park|put it)
        where (is|'s) (the|a|the nearest) (parking space|parking|place for my car|place for the car)
        (can|could) (i|we) (park|leave) (the car|our car|here) (somewhere|here|nearby)
        (we|i) (come|are coming|came|arrived) (by|with the) car, (where to|where do we park|is there parking)
        (do you have|is there) (parking|a place to park|parking spaces|somewhere to leave the car)
        where {canwe} (park|leave|put) (the car|our car|my car|the van|a camper|our minibus)
        {know} where (to park|we can park|i can leave the car|there is parking|one parks)
        (we're|we are|i'm) (coming|arriving|here) by car{comma}where (to park|do we leave it|can we park|is parking)
        {wewant} (park|leave) (the car|our van|my car) (somewhere|close by|nearby){comma}where
        """,
    "fish": """
        (i|we) (want|would like) to see [some] fish
        where are the fish
        where can (i|we) see [the|some] (fish|sharks|sea animals)
        fish
        do you have fish
        * is there a place to see fish
        where (are|do you keep|do you have) the (fish|fishes|sharks)
        (i|we|my kids|my son) (want|wants|would love) to (see|look at|watch) [the|some] (fish|fishes|sharks)
        (are there|do you have) (fish|fishes) [here|in the park]
        which place has fish
        """,
    "parking": """
        how much is (parking|the parking|the car park)
        what does (parking|the car park) cost
        (is parking|is the car park) free
        parking [fee|fees|price|cost]
        how much does (parking|the car park|it) cost [to park] [here]
        do (i|we) (have to|need to) pay for parking
        what do i pay for parking
        how much is it to park [here|my car]
        * is there a fee for parking
        * what does it cost to park a car here
        (what's|whats) the (parking fee|price for parking|parking cost|hourly rate) [here]
        how much (do you charge|do they charge) (for parking|at the car park)
        what does an hour of parking cost
        (do i|do we|must i|must we) pay (for parking|to park|for the car park)
        (what|how much) (does it cost|is it|do i pay|is the price) (to park|for parking) (a car|the car|our car|here)
        (is parking|is it) (expensive|free) (here|to park here|in the car park)
        (parking|the car park): (how much|what does it cost|free)
        how much (per|an) hour (is the car park|for parking)
        what's the (rate|tariff|fee|charge) (for|at) (parking|the car park)
        how much is an hour (of parking|in the car park)
        (how much|what) (do|does) (we|i|one|parking|a parking space) (pay for parking|cost per hour|cost here|pay to \
            leave the car)
        {know} (what parking costs|the parking fee|if parking is free|how much the car park is|what one pays to park)
        (is|would) (leaving|parking) (the|our|a) (car|van|camper) (be|) (free|expensive|dear) [here]
        {canwe} park (for free|without paying|free of charge) [here]
        (parking|car park) (fees|prices|costs|charges|rates|tariff)
        """,
    "pay": """
        (can|may) (i|we) pay (by card|with card|by credit card|in cash|with cash|with my phone|cash|contactless)
        how (can|do) (i|we) pay
        do you (take|accept) (cards|credit cards|cash|visa|card|euros)
        (credit card|card or cash|cash only|card payment)
        is (card|cash) payment (possible|ok)
        are (credit cards|cards) accepted
        * which cards do you accept
        * is it possible to pay by card
        (is|do you have) cash only
        (can|may) (i|we) (use|pay with) (a card|my card|my credit card|my visa|apple pay|notes|coins)
        do you (take|accept) (card|plastic|notes|mastercard|credit card payments)
        (can|could|may) (one|you|we|visitors) pay (by|with) (card|credit card|debit card|phone|cash|bank card)
        (which|what) (payment methods|means of payment) (do you|can we) (accept|use)
        (do you|do they) (accept|take) (american express|debit cards|bank cards|mobile payment|banknotes|contactless)
        (i|we) (have|only have|have only) (cash|a card|my card|coins|a credit card)[ on me|with me], (is that ok|can we pay|can i pay with that)
        (is|are) (contactless|visa|mastercard|apple pay|google pay) (ok|accepted|possible)
        do i need cash
        (card|cash|credit cards) (ok|accepted|possible)
        {canwe} pay (by card|in cash|with a card|contactless|with my phone|with coins|by credit card|with a debit \
            card|with euros)
        {know} (if|whether) (cards|credit cards|cash|contactless) (are accepted|is accepted|is ok|are ok|works)
        (i|we|my {kinone}) (have|has|carry|brought) (no cash|only cash|just a card|no card|only coins|nothing but a \
            card){comma}(is that ok|a problem|can we pay)
        (card|cash|plastic|contactless|coins|notes){sep}(ok|accepted|possible|which one|or not)
        """,
    "lost": """
        i (lost|have lost|forgot|can't find|left) my (bag|phone|wallet|keys|umbrella|hat|jacket|camera|glasses|backpack|purse|ring|coat)
        [where is the] lost (and found|property) [office|desk]
        my (bag|phone|wallet|camera|jacket) (is gone|is missing|was stolen|is lost)
        i found (a|someone's) (bag|phone|wallet|key|hat)
        where (can|do) i (ask for|find|report) lost (things|property|items)
        * someone lost a bag
        * i think i lost my keys
        (i've|i have|we've|we) (lost|left|dropped|misplaced) (my|our|a) (bag|phone|wallet|keys|jacket|camera|scarf|hat|glasses) [somewhere|in the park|here]
        has (anyone|somebody|someone) (found|handed in) (a|my) (bag|phone|wallet|camera|jacket|hat|scarf)
        (i've|i|we|my wife|my husband|my son) (lost|misplaced|forgot|has lost) (my|a|his|her|our) (wallet|phone|bag|keys|hat|jacket|umbrella|camera|gloves|sunglasses|earring|teddy)
        (i|we) (can't|cannot) find (my|our) (wallet|phone|bag|keys|jacket|camera|sunglasses|tickets)
        (where|who) (do|can) (i|we) (ask|go|turn to) (about|for) (lost|missing) (things|items|property)
        (my|our) (wallet|phone|bag|purse|camera|hat|keys) (got lost|has gone missing|is nowhere|must have fallen out somewhere|was left somewhere)
        (i|we) (found|picked up) (a|somebody's) (wallet|phone|hat|bag|set of keys|scarf)[, where do i hand it in|, what do i do with it|, who wants it]
        (someone|somebody) (stole|took) my (bag|wallet|phone|camera)
        where is the lost property (desk|office)
        (i|we) (dropped|left) (my|our) (hat|jacket|bag|umbrella|gloves|sunglasses|phone|map) (on the bench|in the museum|at the cafe|by the fountain)
        (i think|i fear|i'm afraid|it seems|looks like) (my|our) {thing} (is|are|is still|are still) \
            {spot}{comma}{helpme}
        (i|we|my {kinone}) (left|forgot|dropped|lost|mislaid|misplaced) (a|my|our|the|her|his) {thing} {spot}
        (i|we|my {kinone}) (left|forgot|dropped|lost|mislaid|misplaced) (a|my|our|the|her|his) {thing} \
            {spot}{comma}{helpme}
        (i|we|my {kinone}) (must have|may have|might have|probably|seem to have) (left|lost|forgotten|dropped) (my|\
            our|a) {thing}
        (my|our|my {kinone}'s) {thing} (is|are) (gone|missing|lost|nowhere to be found|not in my bag any more)
        (my|our|my {kinone}'s) {thing} (is|are) (gone|missing|lost){comma}{helpme}
        (has|did) (anyone|anybody|somebody|someone) (found|find|seen|handed in|picked up|turned in) (a|my|our) {thing}
        (i|we|my {kinone}) (found|picked up|spotted|came across) (a|somebody's|someone's) {thing} {spot}
        (i|we|my {kinone}) (found|picked up) (a|somebody's) {thing} {spot}{comma}(where do i give it|who wants it|\
            what now)
        (where|whom|how) (can|do|could|would) (i|we) (ask for|ask about|look for|get back|report|find) (a|my|our) \
            lost {thing}
        lost{sep}(a|my|one|our) {thing}
        (i|we) (can't|cannot|can't seem to) find (my|our|the) {thing} [anywhere|any more]
        (someone|somebody|a thief) (stole|took|nicked|snatched|walked off with) my {thing}
        (was|were) (a|any|my) {thing} (handed in|found|brought to you|turned in)
        (a|the) {thing} (was left|is lying|lies|was forgotten) {spot}{comma}(who takes it|whose is it|where do i hand \
            it in)
        {thing} (lost|forgotten|left behind|missing) {spot}
        (whom|who) (do|should|can|must) (i|we) (ask|talk to|speak to|turn to) about (a|my|our) (lost|missing) {thing}
        (a|my|our) {thing} went (astray|missing) (yesterday|this morning|earlier|today|an hour ago){comma}{helpme}
        (my|our) {thing} (got|was) lost (yesterday|this morning|earlier|today){comma}{helpme}
        """,
    "lostchild": """
        (i|we) (lost|have lost|can't find) (my|our) (child|son|daughter|kid|boy|girl|little boy|little girl)
        (my|our) (child|son|daughter|kid) is (lost|missing|gone)
        i am looking for my (child|son|daughter)
        [a] lost child
        * help, my daughter is gone
        * our little son is missing
        (i've|i have|we've|we have) lost (my|our) (kid|child|son|daughter|little one)
        (help|please help), (i|we) can't find (my|our) (son|daughter|child|kid|boy|girl)
        (my|our) (little|five year old|small) (boy|girl|son|daughter) (has disappeared|ran away|is gone|has wandered off)
        (help|help me|please help|quick), (my|our) (son|daughter|kid|child|boy|girl|little one) (is lost|ran off|is missing|got lost|has vanished|vanished)
        (my|our) (son|daughter|kid|child|boy|girl|little one|toddler|three year old) (ran off|ran away|vanished|has vanished|got lost|has run away|wandered off|is nowhere to be found|was here a minute ago)
        (i|we) (can't|cannot|can not) (find|see) (my|our) (little boy|little girl|kid|son|daughter|child|toddler) (anywhere|any more|)
        (i've|i have|we have|we've) lost (sight of|track of) (my|our) (son|daughter|kid|child|boy|girl)
        (where is|have you seen|did you see) my (son|daughter|child|kid|little boy|little girl)
        (a|this|some) (child|little boy|little girl|kid) (is crying and|) (has lost|lost|is looking for) (his|her|the) (parents|mother|mum)
        (there is|here is) a (lost|crying) (child|boy|girl|kid) (here|)
        (i|we) lost (each other|our kid|my boy|our daughter) in the crowd
        what do (i|we) do if (a child|my child|a kid) gets lost
        (missing|lost) (child|kid|boy|girl|son|daughter) [help|please help]
        (my|our) {child} {strayed}
        (my|our) {child} {strayed}{comma}(help|please help|what do i do|what now|who can help|where do i go)
        (help|please|please help|quick|oh no){sep}(my|our) {child} {strayed}
        (my|our) {child} {name} {strayed}
        {name}, (my|our) {child}, {strayed}
        (i|we) (can't|cannot) (see|find) (my|our) {child} (anywhere|any more|in the crowd|{spot})
        (i|we|my {kinone}) (lost|have lost) (sight of|track of|) (my|our) {child} (somewhere|{spot}|in the crowd|a \
            minute ago)
        (has anyone|did you|has anybody|have you) seen (my|our) {child}
        (i|we) (found|met|have here) a (lost|crying) (child|little boy|little girl|toddler|kid) {spot}
        a (small|little|crying) (child|boy|girl|kid) (here|) (can't find|is looking for|has lost) (his|her|the) (mum|\
            parents|family|dad)
        (our|my) class is one (child|pupil|kid) short
        one of (our|the|my) (kids|children|pupils|boys|girls|scouts) {strayed}
        where do (lost|missing) (children|kids) (go|wait|get brought to)
        """,
    "emergency": """
        (someone|my wife|my husband|my child|a man|a woman|my friend) (is hurt|is ill|has fallen|is injured|is bleeding|needs a doctor)
        (i need|call|is there|we need) (a doctor|an ambulance|first aid|medical help|the police)
        (emergency|ambulance|doctor|police|fire)
        (i am|i'm|i feel) (hurt|ill|sick|injured|unwell)
        what do i do in an emergency
        there was an accident
        there is a fire
        * my son is hurt and needs help
        * a woman has had an accident
        (my|our) (son|daughter|kid|child|husband|wife|mother|grandma) (has fallen|fell|is bleeding|is hurt|has hurt himself|has fainted|is not well|cut herself)
        (someone|somebody|a man|a lady) (fainted|collapsed|is unconscious|needs help|has collapsed)
        (help|help me|please help|quick|urgent), (my|our) (wife|husband|mother|father|son|daughter|friend|grandpa) (fell|collapsed|is bleeding|can't breathe|is unconscious|has fainted|is hurt)
        (i|my wife|my son|my friend) (cut|burnt|burned|broke|twisted|hurt) (my|her|his|a) (finger|hand|arm|leg|foot|ankle|knee)
        (my|our) (wife|husband|mother|father|son|daughter|friend) (has|feels) (chest pain|a heart attack|dizzy|very ill|sick|a nosebleed|a high fever|terrible pain)
        (someone|somebody|an old man|a woman|a child) (is choking|is drowning|can't breathe|had a heart attack|fell down|fell into the lake|is bleeding|hurt himself|needs an ambulance)
        (i|we) (need|want) (help fast|help now|urgent help|an ambulance|a doctor quickly|medical help|a nurse|a plaster|a bandage)
        (i|my son|my daughter) (was|got) (stung by a bee|bitten by a dog|hurt|injured|burnt)
        (is there|where is|do you have) (a doctor|a nurse|medical help|a medic) [here|in the park]
        (i feel|i'm feeling|my wife feels) (dizzy|faint|sick|ill|unwell|very bad|terrible)
        (what is|which is) the emergency number
        (whom|who) do (i|we) call in an emergency
        (there's|there is) (a fire|smoke|an accident|a fight|an injured person)
        call (an ambulance|a doctor|the police|112)
        (this is|it's) an emergency
        {victim} {hurt}
        {victim} {hurt} {spot}
        {victim} {hurt}{comma}{hurry}
        {victim} {hurt} {spot}{comma}{hurry}
        {hurry}{sep}{victim} {hurt}
        (i think|i believe|oh no|i'm afraid|come quickly) {victim} {hurt}
        (there is|there's|we have|i see) (a fire|smoke|an accident|a fight|flames|a gas smell) {spot}
        (there is|there's|we have) (an accident|an emergency|a medical emergency|a fire){comma}{hurry}
        (call|get|fetch|send) (me|us|) (an ambulance|a doctor|the police|a paramedic|the fire brigade) (please|now|\
            quickly|at once)
        where (do|can) (i|we) (get|call|find) (a doctor|an ambulance|medical help|a paramedic|the police)
        (i|we) (need|must have) (a doctor|medical help|an ambulance|a paramedic|the police|urgent help) (now|here|\
            {spot}|fast)
        (what number|which number|whom|who) (do i|should i|must i|do we) (call|ring|dial|phone) (for an ambulance|in \
            an emergency)
        (i|my {kinone}) (feel|feels|am feeling|is feeling) (very ill|really sick|faint|awful|dizzy){comma}{hurry}
        (a|an old|a young) (man|woman|lady|gentleman|girl|boy) (over there|near us|on the bench|by the lake) (doesn't move|won't wake up|does not answer|can't get up|is shaking all over)
        """,
    "photos": """
        (can|may) (i|we) (take|make) (photos|pictures|a photo|videos|a picture) [here|inside|in the museum]
        (are photos|is photography|are pictures) (allowed|permitted) [here|inside|in the museum]
        (photos|photography|taking pictures)
        is it (ok|allowed) to take (photos|pictures)
        can i use (my camera|flash|a camera)
        * may we take pictures of the fish
        * am i allowed to take photos
        (is|are) (flash|selfies|photos|pictures|filming|videos) (ok|allowed|permitted|forbidden) [here|inside|in the aquarium|in the museum]
        (can|may|could) (i|we) (film|photograph|take selfies|use flash) [here|inside|in the museum|the fish]
        (can|may) (one|visitors|you|we) (take|make) (photos|pictures|selfies|videos) (here|in the aquarium|everywhere|in the buildings)
        (are|is) (cameras|taking photos|taking pictures|a camera|flash) (allowed|permitted|forbidden|ok) [here|inside|in the museum]
        (do you|does the museum) (allow|permit) (photos|pictures|photography|cameras|flash)
        (am i|are we) allowed to (photograph|film|take a selfie|use flash) [in the museum|in the aquarium|here]
        (i|we) (want|would like) to (take|make) (some|a few) (photos|pictures)[, is that ok|, is that allowed]
        {canwe} (take|make|shoot) (photos|pictures|a few pictures|selfies|a video|videos) (here|in the museum|of the \
            fish|everywhere|inside)
        {know} (if|whether) (photos|pictures|cameras|flash photos|videos) are (allowed|permitted|ok|forbidden) \
            [inside|in the museum]
        (my|our) {kinone} (loves taking pictures|is a photographer|brought a camera|wants to film){comma}(is that \
            allowed|is that ok|any rules)
        (is|would) (my|a|the) (camera|flash|tripod camera|video camera) (be|) (allowed|a problem|ok|permitted) \
            [inside|in the aquarium]
        (photos|pictures|selfies|filming|flash) (in the museum|in the aquarium|inside|with the fish){sep}(ok|allowed|\
            yes or no)
        """,
    "smoking": """
        (can|may) (i|we) smoke [here|in the park|outside]
        is smoking (allowed|permitted|ok) [here]
        where (can|may) (i|we) smoke
        smoking
        is there a smoking area
        * am i allowed to smoke here
        (can|may|could) (i|we) have a (cigarette|smoke) [here|somewhere]
        where is the smoking (area|zone|corner)
        (is|are) (cigarettes|smoking|vaping|e-cigarettes) (allowed|permitted|forbidden|ok) [here|in the park]
        (i|my husband|my wife) (need|needs|want|wants) (a cigarette|to smoke|a smoke)[, where can we go|, is that ok|, where is that allowed]
        (do you|does the park) (allow|have) (smoking|a smoking area|smoking zones)
        (can|may|could) (people|you|one|i) (smoke|vape) (here|outside|in the park|on the terrace)
        {canwe} (smoke|have a cigarette|light up|have a smoke|vape|smoke a pipe|smoke a cigar) (here|outside|in the \
            park|somewhere|at the cafe)
        {know} (if|where) (smoking is allowed|i can smoke|we may smoke|one can have a cigarette)
        (my|our) {kinone} (smokes|needs a cigarette|would like to smoke|wants to light up){comma}(is that ok|where|is \
            that allowed)
        (is|would) (a cigarette|vaping|a cigar|smoking a pipe|smoking) (be|) (a problem|ok|allowed|tolerated) (here|\
            on the lawn|outside)
        (and|what about|how about) (a cigarette|a cigar|a smoke|a pipe|vaping) (here|on the lawn|outside|on the bench|)
        """,
    "bikes": """
        (can|may) (i|we) (bring|ride|use|take) (my|our|a) (bike|bikes|bicycle|scooter|bicycles) [here|in the park|inside]
        are (bikes|bicycles|scooters) allowed [here|in the park]
        where can (i|we) (leave|park|lock) (my|our) (bike|bikes|bicycle|scooter)
        (bikes|bicycle|bike parking)
        is cycling allowed
        * i came by bike, where can i leave it
        (we|i) (came|come|arrived) (on bikes|by bicycle|with bikes), where (do|can) (we|i) (leave|put|park) (them|it)
        where do (bikes|bicycles|scooters) go
        (we|i) (came|come|are coming|arrived) by (bike|bicycle|scooter)[, where can we leave it|, where to put it|, is that ok|, can we ride in]
        (can|may|could) (one|you|the kids|my son|people) (ride|cycle|bring|use) [a|their|his] (bike|bikes|scooter|bicycle) (here|in the park|inside)
        where (can|should|do) (i|we) (lock|put|leave|park) (our|my|the) (bikes|bike|bicycles|scooters)
        (is there|are there) (a bike rack|bike racks|bicycle parking|a place for bikes|a place for our bikes)
        is (cycling|riding a bike|riding a scooter) (allowed|permitted|ok) [in the park|here]
        where {canwe} (leave|park|lock|put|chain) (a bike|our bikes|my bicycle|the scooter|our bicycles|an e-bike)
        {canwe} (ride|cycle|bring|push|take) (a bike|our bikes|my bicycle|a scooter|an e-bike) (in the park|here|\
            inside|on the paths)
        {know} (if|where) (bikes|bicycles|scooters|e-bikes) (are allowed|can be left|can be parked|may come in)
        (we|i) (cycled here|rode here|came on our bikes|came by scooter|came by e-bike){comma}(where do they go|where \
            to leave them|is that ok)
        (is|are) (a bike|bikes|cycling|e-scooters) (a problem|allowed|ok) (on the paths|in here|in the park)
        """,
    "stroller": """
        (can|may) (i|we) (bring|use|take) (a|our|my) (stroller|pram|buggy|pushchair) [here|in the museum|inside]
        are (strollers|prams|buggies) (allowed|welcome|ok)
        (stroller|pram|baby carriage)
        we have a (stroller|pram|buggy|baby)[, is that ok]
        * is it possible to come with a stroller
        (is|are) (a stroller|a pram|strollers|a buggy) (ok|fine|a problem|allowed) [here|inside]
        (can|could) (we|i) get around with a (stroller|pram|buggy|pushchair)
        (can|may|could) (i|we) (come|go|get|walk) (in|inside|around|everywhere) with (a|the|our|my) (stroller|pram|buggy|pushchair|baby carriage)
        (is|are) (the park|everything|the museum|the buildings) (ok|fine|good|suitable) (for|with) (strollers|a stroller|prams|buggies|a pram)
        (where|how) (can|do) (we|i) (leave|park|get around with) (the|our|my) (stroller|pram|buggy)
        (we|i) (come with|have|brought) a (stroller|pram|buggy|pushchair)[, is that ok|, any problem|, can we go everywhere]
        (strollers|prams|buggies) (allowed|ok|welcome)
        {canwe} (bring|take|push|use) (the|a|our|my) (pram|stroller|buggy|pushchair|baby carriage) (here|inside|\
            everywhere|in the museum)
        (is|are) (a pram|prams|a buggy|strollers|the pushchair|our twin buggy) (a problem|allowed|ok|fine|welcome) \
            (inside|here|everywhere)
        {know} (if|where) (prams|strollers|buggies|pushchairs) (are allowed|can go|are ok|may go in)
        (our|my) (baby|little one|daughter|son) (is|sits|sleeps) in a (pram|buggy|stroller|pushchair){comma}(can we \
            get in|is that ok|any problem)
        """,
    "tour": """
        (are there|do you have|do you offer) [guided] tours
        when (is|are|does|do) the [next] [guided] (tour|tours) [start|begin]
        [guided] (tour|tours)
        what time (is|does) the guided tour [start]
        is there a [guided] tour [of the park]
        where do [guided] tours start
        i would like (a guide|a guided tour|to join a tour)
        * at what time do guided tours begin
        * can we join a guided tour
        (is there|do you have|do you do|can we get) a guide
        when (can|could) (we|i) (join|take) a (tour|guided tour)
        (when|where|when and where) (do|does) the [guided] (tours|tour) (start|begin|meet|leave)
        (is there|are there|do you have) (a|any) [guided] (tour|tours) (today|tomorrow|on sunday|this afternoon|in the morning|every day)
        (when is|what time is|where is) (today's|the next|the first|the last) [guided] tour
        (i|we) (want|would like|would love) to (join|book|take|do) a [guided] tour[, when is it|, where does it start|, when and where]
        (can|could) (someone|a guide|somebody) (show us around|guide us|explain the park to us)
        how often (are there|do you do|are) [guided] tours
        (tour|tours|guided tour) (times|when|where|start|meeting point)
        (what time|when) are the tours and where do they (start|begin)
        (when|at what time|where|when and where) (do|does|can we join) (a|the|today's) guided (tour|tours|walk) \
            [start|begin|leave]
        {know} (when|where|if) (there are guided tours|the guided tour starts|guided tours leave|we can join a tour)
        {wewant} (join|take|go on|do|book) a (guided tour|tour|guided walk|tour with a guide){comma}(when|when is it|\
            where does it start|what times)
        (can|could|would) (a guide|somebody|someone) (show|take|lead) (us|me|our group) (around|round the park|\
            through the park)
        (my|our) {kinone} (likes|loves|wants) (tours|a tour|guided tours){comma}(when is one|are there any|when and \
            where)
        """,
    "feeding": """
        when (are the fish|do you feed the fish|is feeding time|are the animals fed|do the fish eat)
        (feeding|feeding time|fish feeding)
        what time (are the fish fed|is the feeding|is feeding time)
        can (i|we) (watch|see) the (feeding|fish being fed|fish eat)
        when can (i|we) (watch|see) the feeding [of the fish]
        * what time do the fish get food
        * at what time is the fish feeding
        what time (do they|do you) feed the (fish|animals|sharks)
        when do the fish get (fed|their food|dinner)
        (when|at what time) are the (fish|fishes|sharks|animals) [in the aquarium] fed
        (when|at what time) do the (fish|fishes|sharks) (get their food|get food|have dinner|have breakfast|have a meal|eat)
        (when|what time|at what time) (can|could) (we|i|the kids) (see|watch) (the feeding|them feed the fish|the fish being fed|the fish eating)
        (is there|do you have) a (feeding|fish feeding|feeding show|feeding time) [today|at the aquarium]
        (what are|tell me) the feeding (times|hours) [in the aquarium|of the fish]
        (fish|aquarium|shark) feeding (time|times|when)
        how often (are the fish fed|do you feed the fish|do the fish eat)
        (my|our) (kids|son|daughter) (want|wants) to (see|watch) the (feeding|fish eat)[, when is it|, when is that]
        when is (dinner|breakfast|mealtime|food) (for|of) the (fish|fishes)
        when do the (fish|fishes|sharks) (get|have) their (food|dinner|breakfast|meal|meals)
        (when|at what time) {canwe} (see|watch) (the fish being fed|the feeding|the fish get their food|the fish eat|\
            them feed the fish)
        {know} (when|at what time) (the fish are fed|feeding time is|they feed the fish|the fish get fed|the fish eat)
        {wewant} (see|watch) (the feeding|the fish eat|the fish being fed|feeding time){comma}(when is that|what time|\
            when should we be there)
        (feeding|meal|dinner) (time|times) (for|of) (the|your) (fish|fishes|sharks)
        (my|our) {child} (loves fish|wants to see fish eat|wants to feed the fish){comma}when (is the feeding|are \
            they fed)
        """,
    "show": """
        when (is|does|are|do) the [next] [star|planetarium] (show|shows) [start|begin]
        what time (is|does|do) the [star|planetarium] (show|shows) [start]
        (star show|show times|shows|planetarium show)
        are there shows in the planetarium
        when can (i|we) (see|watch) the stars
        * at what times are the star shows
        * when does the show in the planetarium begin
        (what's|when's) the (next|first|last) (star show|show|planetarium show)
        how often (is|are) the star (show|shows)
        when (do|does) the star (shows|show) (run|take place|happen)
        (when|what time|at what time) (can|could) (we|i|the kids) (see|watch|catch) (a|the) (star show|show|show in the planetarium)
        (what are|tell me) the (show times|times of the star shows|star show times)
        (is there|do you have) a (star show|show) (today|tonight|in the planetarium|this afternoon|in the evening)
        (planetarium|star) (show|shows) (times|when|today|start)
        (when is|what time is) (today's|the last|the first|the next) [star|planetarium] show
        how many [star] shows (are there|do you have) [a day|in the planetarium]
        (i|we) (want|would like) to (see|watch) (a|the) star show[, when is it|, when does it start]
        (when|at what time) {canwe} (see|watch|catch) (a|the|the next) (star show|show in the planetarium|planetarium \
            show)
        {know} (when|at what time) (the star show starts|the shows start|the star shows are|there is a star show)
        {wewant} (see|watch|catch|take in) (a star show|the show in the planetarium|a planetarium show){comma}(when \
            is it|what times|when should we be there)
        (my|our) {child} (loves stars|wants to see the stars|is mad about planets){comma}when (is the star show|do \
            the shows start)
        (times|starting times|schedule) (for|of) the (star shows|planetarium shows|star show)
        """,
    "group": """
        (is there|are there|do you have|do you offer) (a group discount|group discounts|group prices|group tickets|discounts for groups)
        (group discount|group tickets|group price|discount|discounts)
        how much (is it|do we pay) for (a group|groups)
        we are a [big|large] group[, is there a discount]
        (is there|do you have) a discount [for groups|for schools|for a school class]
        * do groups get a discount
        * what do groups pay
        (we are|there are|we're) {x} (people|of us|persons|pupils), (is there|do we get) a (discount|group discount|reduction|special price)
        (do|would) we get (a discount|anything off|it cheaper|a special price) (as a group|for a group|with {x} people|if we are {x})
        (any|is there a) (discount|reduction) for (a large party|big groups|school classes|a big family)
        how (big|many people) (must|does) a group (be|need) for (a|the) discount
        (do|would|could) we (get|have) (a|any) (discount|group discount|reduction|rebate) (with {x} people|as a big group|for {x} of us)
        do you (give|offer) (discounts|reductions) (to|for) (groups|big groups|{x} people)
        (is it|do we get it|are tickets) cheaper (for groups|as a group|in a group|for a big group|with a group of {x})
        (we|our group) (are|is) {x} (people|persons|strong|visitors|of us), (is there|can we get|do you have) (a discount|a group rate|a better price|money off)
        (any|are there|do you have) (group rates|group deals|discounts|deals|reductions) [for us|for schools|here]
        (what|how much) (is|off is|do we save with) the group (discount|price|rate)
        from how many (people|visitors) is there a (discount|group price)
        (we|i) come with a (big|large) group, (is it cheaper|any discount|do we get a discount)
        does a (school class|class|club|large family) (get|pay) (a discount|less)
        what (discounts|reductions) do you (have|offer|give)
        (is|was) that [already] with the [group] discount
        does (that|this|the total|the sum) [already] include the [group] discount
        [and] (with|after|minus) the [group] discount
        (how much|what) is (it|that) (with|after) the [group] discount
        what do we pay (with|after) the [group] discount
        (is the discount|was the discount) [already] taken off
        {crowd}{sep}{deal}
        {deal}{sep}{crowd}
        {deal} (for|if we are|with) {x} (people|colleagues|pupils|visitors|friends|kids|of us)
        (i'm|we're|i am) (bringing|coming with|organising a trip for|travelling with) {x} (people|pupils|colleagues|\
            guests){sep}{deal}
        (how much|what) (do|would|will) (we|groups) save (as|with|in) a group
        (how many|what number of) (people|heads|visitors|of us) (do you need|does it take|are needed) for (a|the) \
            (discount|group rate)
        (from|with|at) (how many|what number of) (people|visitors|heads) (is it|does it get|will it be) cheaper
        {know} (if|whether) (groups|large groups|school classes|clubs|big families) (pay less|get a discount|get \
            money off)
        (is|does) (that|the sum|the price|that figure) (include|with|including|before or after) the (group discount|discount|reduction)
        is the (reduction|discount) (in there|in it|already off|included) [already]
        """,
    "toddler": """
        (do babies|do small children|do toddlers|does a baby) (pay|need a ticket|cost anything)
        is (it|entry) free for (babies|toddlers|small children|a baby|infants)
        [how much is it] for a (baby|toddler|two year old|three year old|one year old)
        from (what|which) age do (children|kids) (pay|need a ticket)
        (babies|toddlers)
        my (son|daughter) is (two|one|three) [years old], (does he pay|does she pay|do we need a ticket)
        * until what age is entry free for children
        * does our baby need a ticket
        (our|my) (baby|toddler) is (with us|one|two|18 months old), (does he|does she|do we) (pay|need a ticket)
        do (i|we) (pay|need to pay|need a ticket) for (a|our|my) (baby|toddler|infant|newborn)
        are (babies|toddlers|infants) free
        does (my|a|the) (baby|toddler|two year old|one year old|three year old|newborn|infant) (pay|need a ticket|cost anything|have to pay)
        must our (baby|toddler|two year old|newborn) pay
        (do|must) (i|we) (pay|buy a ticket) for (my|our|a) (baby|toddler|two year old|1 year old|3 year old|small child)
        (my|our) (son|daughter|baby|little one|grandson) is (two|three|2|3|one|1|18 months|six months) [years|year|] [old], (is it free|do we pay|is she free|is he free|what do we pay)
        (until|up to|from) (what|which) age (is it free|do children pay|are children free|is entry free)
        are (children|kids) (under|below|up to) (two|three|2|3) [years] (free|free of charge)
        (do|are) (very small|the smallest|tiny) (children|kids) (pay|free)
        how old (must|can) (children|a child|kids) be to (pay|enter free|get in free)
        (does|must|should|will) (my|our|a) (baby|toddler|two year old|newborn|one year old|infant|tiny daughter) \
            (be charged|have to pay|buy a ticket|pay anything)
        (my|our) (baby|little one|grandson|niece|nephew|daughter|son) is (only|just) (one|two|three|2|3|a few \
            months)[ old]{comma}(free|does he pay|ticket)
        (what about|how about|and) (babies|toddlers|infants|our baby|very small children){sep}(free|do they pay|\
            ticket needed)
        {know} (if|whether) (babies|toddlers|two year olds|infants) (pay|are free|need a ticket|get in free)
        (our|my|the) (baby|toddler|one year old) (sleeps|sits) in the (pram|stroller){comma}(do we pay for her|must \
            he pay|is she free)
        (up to|until|till) (which|what) (age|birthday) (are kids free|is a child free|do kids get in free|don't we \
            pay for a child)
        """,
    "ages": """
        (until|up to) (what|which) age (do kids pay the child price|is it the child price|does the child ticket apply|does one count as a child|is one a child)
        from (what|which) age (is one|are you|does one count as|do you count as) a senior
        (what|which) age counts as (a child|child|senior|a senior)
        how old (can|may) a child be for (the child price|a child ticket)
        is (a 13|a 14|a 15|a 16|a 12|a thirteen) year old (a child|an adult|still a child)
        does (my|our|a) (15|16|12|13|14|17|fifteen|fourteen) year old pay (as a child|the child price|the adult price|full price|as an adult)
        (what are|tell me) the age (groups|bands|classes) [for tickets|for the prices]
        at (what|which) age do (you|we) (pay the senior price|pay the adult price|pay full price|stop being a child)
        who (counts as|is) a (child|senior) (here|for you|with you)
        (my|our) {child} is (13|14|12|11|15|16|fourteen|sixteen)[ years old]{comma}(child or adult|which ticket|what ticket do we need|child price or adult price)
        (is there|do you have) a (price|ticket|rate) for (teenagers|teens|teenage kids|young people)
        (do|are) teenagers (pay the full price|pay as adults|still children|cheaper)
        how old (must|do) (i|we|one) (be|have to be) for the senior (price|ticket|discount)
        (i'm|i am|my {kinone} is) (66|67|70|64|65|63|seventy|sixty){comma}(senior price|do i get the senior price|is that a senior|which ticket)
        {know} (until what age|up to what age) (the child price|a child ticket) (is valid|applies|counts)
        (child|senior) (price|ticket){sep}(from what age|up to what age|which age|what age)
        """,
    "buy": """
        where can (i|we) (buy|get) (tickets|a ticket|the tickets)
        where (are tickets sold|do i buy tickets|do you sell tickets|is the ticket office)
        can (i|we) (buy|get) tickets (here|online|at the door|from you)
        (ticket office|buy tickets|ticket sale)
        how do (i|we) (buy|get) (tickets|a ticket)
        i (want|would like|need) to buy (tickets|a ticket)
        * where is it possible to buy tickets
        * do you sell tickets here
        where (do|should|can) (we|i) (pay|get our tickets|get tickets|pay for tickets)
        (can|do) (we|i) (buy|get) (the tickets|our tickets) (right here|here|at the entrance|at the museum|from you)
        (where|how) (can|could|do|would) (one|you|visitors|we|i) (buy|get|purchase) (tickets|a ticket|admission tickets)
        (are|can) (tickets|the tickets) (sold|available|be bought|on sale) (here|online|at the door|at the entrance|at the kiosk)
        (do|should|must) (i|we) buy (tickets|the tickets) (in advance|here|at the door|online|at the museum)
        (is this|are you|is here) (the ticket office|where i buy tickets|where we buy tickets)
        (can|could) you sell (me|us) (tickets|a ticket|the tickets)
        where's the (ticket office|ticket counter|ticket desk|box office)
        where {canwe} (buy|get|pay for|purchase|pick up) (tickets|a ticket|our tickets|the tickets|entry tickets)
        {know} where (to buy tickets|we get tickets|tickets are sold|one buys a ticket|the tickets are)
        {wewant} (buy|get) (tickets|a ticket|our tickets){comma}(where|where do i go|where is that possible|how)
        (tickets|a ticket){sep}(where|where do i buy one|where from|sold where|can i get one here)
        """,
    "refund": """
        can (i|we) (return|give back|refund) (my|the|a|our) (ticket|tickets)
        can i get (a refund|my money back)
        (refund|refunds|money back)
        i (bought|have) (the wrong ticket|a ticket i do not need)
        i (want|would like) (a refund|my money back|to return my ticket)
        * is it possible to get a refund
        * how do i return a ticket
        (we|i) (bought|got) (too many tickets|the wrong tickets|tickets we don't need)[, what now|, can i give them back]
        (can|could) (we|i) (get|have) (our|my) money back
        (can|could|may) (i|we|one) (return|give back|hand back|cancel) (unused|the|our|my) (tickets|ticket)
        (we|i) (don't|do not|no longer) (need|want) (our|my|the) (tickets|ticket) [any more], (can we give them back|can i return it|what now|do we get money back)
        (do|will|would) (i|we) get (our|my|the) money back [for the tickets|if it rains|for unused tickets]
        (how|where) (can|do) (i|we) (get|claim|ask for) (a refund|our money back|my money back)
        is there a refund [for tickets]
        (we|i) (bought|have) (one ticket|tickets) too many[, can we return it|, can i return them]
        {canwe} (return|give back|hand back|cancel|get money back for) (a ticket|our tickets|the tickets|unused \
            tickets|two tickets)
        (my|our) {kinone} (fell ill|can't come|didn't come|changed her mind){comma}(can i return the ticket|can we \
            get our money back)
        {know} (how to return a ticket|if tickets can be returned|if i get my money back|where to return tickets)
        (we|i) (have to leave early|can't use our tickets|bought too many|picked the wrong ticket){comma}(refund|can \
            i return them|money back)
        """,
    "phone": """
        what is (your|the) (phone number|telephone number|number) [of the park]
        (how|where) can i (call|reach|contact) (you|the park|someone|the office)
        (phone number|telephone|contact)
        can i (call|talk to|speak to) (someone|a human|a person|the office|the manager)
        i want to (talk|speak) to (someone|a person|a human|the manager)
        (do you have|is there) a (telephone|phone) number [i can call]
        (who|whom) can i call
        * what number do i call
        * which number can i call
        (is there|have you got) a (number|hotline|phone number) (for|of) the (park|office|park office)
        how (do|can) i (phone|ring|call) the (park|office|park office)
        (what's|what is|give me|can i have|do you know) (the|your) (number|phone number|telephone number) (of|for) (the park|the office|the park office|alder park)
        (how|where) (can|could|do) (i|we) (reach|call|contact|phone) (the office|the park|a human|the staff|somebody|management)
        (i|we) (want|need|would like) to (call|phone|complain|speak to a human|talk to someone|speak to somebody|make a complaint)
        (can|could|may) (i|we) (speak|talk) (to|with) (a human|a real person|the staff|an employee|your boss)
        (is there|do you have) (a hotline|someone i can call|a number to call|a contact)
        {know} (the phone number of the park|how to reach the office|your number|the number of the office|whom i can \
            call)
        (how|on what number|on which number) {canwe} (reach|call|phone|ring) (the office|the park|someone|the park \
            office|a human)
        {wewant} (speak to a person|call the office|talk to somebody|complain to someone|phone the park){comma}(how|\
            what's the number|which number)
        """,
    "charge": """
        (can|where can) (i|we) charge (my|our|a) (phone|phones|mobile|laptop|battery) [here]
        my (phone|battery) is (empty|dead|nearly empty)
        (is there|where is) a (charging station|socket|power outlet|charger)
        i need to charge my phone
        * is it possible to charge a phone here
        (my|our) phone (died|is about to die|has no battery|is out of battery|is flat)[, where can i charge it|, can i charge it here]
        where (are|is) (the|a) (plugs|plug|socket|charging point|charging points)
        (where|how) (can|could|do) (i|we) (charge|recharge|plug in) (my|our|a) (phone|mobile|mobile phone|laptop|tablet|camera)
        (my|our) (phone|mobile|tablet|camera) (is dead|is nearly dead|has run out of power|is running out of battery|needs charging|is empty)[, can you help|, where can i charge it|, is there a plug]
        (is there|are there|any|do you have) (a charger|a power socket|power outlets|a charging point|charging stations|a plug for my phone|somewhere to charge a phone)
        (i|we) need (a socket|power|electricity|a charger|a plug) for (my|our) (phone|mobile|laptop)
        (phone|battery) (charging|charger)
        (my|our|my {kinone}'s) (phone|mobile|battery|tablet|camera|laptop) (is at 2 percent|is dying|died|is low|has \
            run flat){comma}(any sockets|where can i charge it)
        where {canwe} (charge|plug in|load|power up) (a phone|our phones|my mobile|the camera|my laptop|a tablet)
        {know} where (i can charge my phone|there is a socket|one can charge a phone|to charge a mobile)
        (any|a|is there a) (socket|plug|power point|charging point|outlet|charger) (here|for my phone|around|anywhere|\
            for visitors)
        (low|empty|dead|flat) (battery|phone|mobile){comma}(help|where can i charge|what now)
        (my|our) (mobile|phone|battery|tablet) (is nearly dead|is on five percent|gives up|is running out|wants power){sep}(where|a socket|any plug|where can i plug it in)
        """,
    "language": """
        do you speak (german|french|spanish|italian|chinese|japanese|russian|dutch|polish|arabic|other languages)
        (which|what) languages do you speak
        can you (speak|talk) (german|french|spanish|italian|chinese|turkish|portuguese)
        (sprechen sie deutsch|parlez-vous francais|habla espanol|hola|bonjour|guten tag|ciao|hallo)
        * which languages do you know
        * can we talk in french
        (do|can) you (speak|understand|answer in|talk) (hindi|korean|swedish|greek|czech|ukrainian|danish|hungarian|norwegian|finnish|hebrew|vietnamese|my language|another language)
        (can|could) (we|you) (speak|talk|answer|switch) (in|to) (german|spanish|italian|chinese|russian|dutch|polish|japanese)
        (is there|do you have) (a|an) (german|spanish|italian|french|chinese|other) (version|language|menu)
        (answer|speak|reply|talk) (in|) (german|spanish|italian|french|chinese|dutch) [please]
        (i|we) (don't|do not) speak (good|much) english[, do you speak french|, do you speak german|, do you speak spanish]
        (wo ist|wo finde ich|wie komme ich zu|wie weit ist es zu) (das museum|dem museum|die toilette|der turm|das restaurant|dem bahnhof|die bushaltestelle)
        (wann|bis wann|ab wann) (ist|hat) (das museum|der park|das aquarium|das cafe|das restaurant) (offen|auf|geoeffnet) [am montag|am sonntag|heute]
        (was kostet|wie viel kostet|wieviel kostet) (das museum|der eintritt|das aquarium|ein kaffee|das parken) [fuer kinder|fuer zwei erwachsene]
        (ou est|ou sont|comment aller a|je cherche) (le musee|les toilettes|la gare|l'aquarium|le restaurant|la tour)
        (combien coute|quel est le prix de|a quelle heure ouvre|quand ouvre|quand ferme) (le musee|l'aquarium|un cafe|l'entree|le parc) [s'il vous plait]
        (donde esta|donde estan|como llego a|busco) (el museo|los banos|el acuario|la estacion|el restaurante|la torre)
        (cuanto cuesta|a que hora abre|a que hora cierra|cuando abre) (el museo|el acuario|la entrada|un cafe|el parque) [por favor|el domingo]
        (dove|dov'e|dove sono|come arrivo a) (il museo|i bagni|l'acquario|la stazione|il ristorante|la torre)
        (quanto costa|a che ora apre|a che ora chiude|quando apre) (il museo|l'acquario|il biglietto|un caffe|il parco) [per favore|domenica]
        (waar is|hoeveel kost|wanneer opent) (het museum|het toilet|het aquarium|het park)
        (ich moechte|wir brauchen|haben sie) (zwei karten|einen kaffee|hilfe|eine frage)
        (je voudrais|nous voulons|avez-vous) (deux billets|un cafe|une carte|de l'aide)
        (quiero|queremos|tienen) (dos entradas|un cafe|un mapa|ayuda)
        (merci beaucoup|danke schoen|vielen dank|muchas gracias|grazie mille|obrigado|spasibo|arigato)
        (buenos dias|guten morgen|bonsoir|buongiorno|konnichiwa|ni hao|salut|hej|ola)
        {know} (german|french|spanish|italian|dutch|polish|any other language)
        {canwe} (talk|speak|write|ask) (in|) (german|french|spanish|italian|dutch|polish|russian|turkish) [here|with \
            you]
        (my|our) {kinone} (only speaks|speaks only|just speaks|understands only) (german|french|spanish|italian|\
            japanese|polish|greek)
        """,
    "age": """
        how old is (the park|alder park|this park)
        when was (the park|alder park|this park) (opened|built|founded|made)
        since when does (the park|alder park) exist
        in (what|which) year was (the park|alder park) (built|opened)
        * when did alder park open for the first time
        (when|in what year) did (alder park|the park|this park) (open|start)
        (how long|since when) (has|does|is) (alder park|the park|this park) (been open|been here|existed|exist)
        (what is|how high is) the age of (the park|alder park)
        is (the park|alder park|this park) (very|) old
        {know} (how old the park is|when the park was opened|since when the park exists|in which year it all began here)
        (when|in which year) (did it all begin here|was the park founded|did the park first open|did alder park start)
        (is|was) (alder park|the park|this park) (old|new|there before the war|very old|built recently)
        """,
    "again": """
        (what|sorry|pardon|huh|hm|why|how|when|where|who)
        (i do not|i don't) (understand|know)
        can you (repeat that|say that again|explain that)
        what do you mean
        * i don't understand you
        (can|could) you (say|repeat|explain) (it|this|that) (once more|again|please)
        (i|we) (didn't|did not) (get|catch|understand) (that|it)
        (come again|say again|once more please|pardon me|sorry what)
        that (was not|is not|isn't|wasn't) what i (asked|meant|wanted)
        """,
    "people": """
        how much is it for [all of] us
        what do we pay [for everything]
        (we are|there are|we're) {x} [of us|people]
        how much for a family [ticket]
        what does a family pay
        * what will all of us pay
        what (would|do) (we all|all of us|we|my family) pay [all together|in total]
        (we are|we're) a family of (three|four|five|six|{x})[, what do we pay|, how much is it]
        (tickets|entry|price) for (my family|a family|{x} people|all of us|four people)
        how much is a (family|group) ticket
        {total} for (all of us|our family|the whole gang|everybody|our crew)
        {total} for {x} (people|of us|persons|visitors)
        {planto} (buy|get) {x} tickets{sep}{total}
        (we|i) (bring|come with) (friends|the family|relatives|the whole gang){sep}{total}
        """,
    "holiday": """
        (are you|is the park|is everything) open (on|over|during) (the|public|bank|school) holidays
        what are (the|your) holiday (hours|opening times|opening hours)
        (holiday|holidays|public holidays|bank holidays|christmas) [hours|opening times]
        do you (close|open) (on|for|over) (public holidays|bank holidays|christmas|easter|new year|the holidays)
        do the (hours|opening times) change (in winter|in summer|on holidays|over christmas|during the holidays)
        * is there another timetable on holidays
        (are you|is the park|is everything|are the attractions) (open|closed) (on|at|over|during) (christmas|easter|new year|public holidays|bank holidays|christmas day|new year's eve)
        (what|when) are (your|the) (christmas|easter|new year|holiday|winter|summer) (hours|opening hours|opening times)
        do you (open|close) (earlier|later) (on|before|over) (christmas|holidays|public holidays|new year)
        (what happens|is it different) on (public holidays|holidays|bank holidays)
        (when|how long) are you open (on|at|over) (christmas|easter|public holidays|new year's day|boxing day)
        """,
    "hundreds": """
        (we are|there are|we're) (100|120|150|200|250|300|400|500|1000|two hundred|a hundred) (people|children|students|of us|pupils)[, what do we pay|, how much is it]
        how much for (100|120|150|200|250|300|500|1000|a hundred|two hundred) (people|children|adults|students|coffees|postcards)
        {total} for (150|180|220|260|350|450|600|800|a thousand) (people|visitors|pupils|adults|kids|students|seniors)
        (150|180|220|260|350|450|600|800) (of us|people|visitors|pupils|employees|guests){sep}{total}
        """,
    "nearest": """
        (which|what) (attraction|place|sight) is (the nearest|the closest|nearest|closest) [from here|to here|to us|to the kiosk]
        (what|which) is the (nearest|closest) (attraction|sight|thing to see)
        (what's|where's|where is) the (nearest|closest) (attraction|sight|place to visit)
        (our feet hurt|we are tired|we can't walk far), (what is|which attraction is) the closest
        what can we (see|visit) close (by|to here)
        which attraction is (not far|the shortest walk) [from here]
        * which sight is the least far away
        {know} (which attraction is nearest|the nearest attraction|which sight is closest to here|what we can see \
            close by)
        (which|what) (attraction|sight) (is|has) (the shortest walk|just a short walk|quickest to reach|within easy \
            reach|the shortest way)
        {walker} can't walk far{comma}(which attraction is nearest|what is closest|which sight is closest)
        """,
    "farthest": """
        (which|what) (attraction|place|sight) is (the farthest|the furthest|farthest|furthest) [away|from here]
        (what|which) is the (farthest|furthest) (attraction|sight)
        (what's|where is) the longest walk [in the park|from here]
        which attraction is the (longest walk|most distant)
        * to which place do we walk the longest
        {know} (which attraction is farthest|the farthest attraction|which sight is the longest walk)
        (which|what) (attraction|sight) (has|is) (the longest walk|furthest from here|the biggest distance|most far \
            away|the longest way)
        """,
    "fountain": """
        where (is|'s) the fountain
        how (do|can) (i|we) (get to|find|reach) the fountain
        [the] way to the fountain
        how far is (it to|) the fountain
        (what|which) fountain [do you mean]
        (i|we) can't find the fountain
        which way is the fountain
        the fountain[, where is that]
        * how long do we walk to the fountain
        the fountain{sep}{where}
        {know} where the fountain is
        {wewant} (see|meet friends at|find) the fountain{comma}{where}
        {person} (waits|is waiting) (at|by) the fountain{comma}{where}
        """,
}

# What a visitor says first, before a question that leans on it. {kin} names people without numbers, {ps} two places.
LEADS = {
    "place": """
        (we|i) (would love|would like|want|plan|are hoping|am hoping) to (see|visit) the {p}
        (we're|we are|i'm|i am) (thinking of|thinking about|planning on) (visiting|seeing) the {p}
        (we|i) (have heard|heard|read) (good|great|nice) things about the {p}
        (my|our) (kids|children|boys|girls) (want|would like|would love) to see the {p}
        my (son|daughter|wife|husband|mother|friend) (wants|would like|would love) to see the {p}
        (a friend|somebody|my sister) (told us about|recommended|told me about|mentioned) the {p}
        the {p} (looks|sounds) (nice|good|interesting|fun)
        (about|regarding|concerning) the {p}
        (i have|we have|just) a question about the {p}
        (next|first) on our list is the {p}
        (we're|we are|i'm|i am) (going|off|heading) to the {p} [now|later|next]
        we've never been to the {p}
        the {p}
        so, the {p}
        {wewant} {visit} the {p}
        (everybody|everyone|my {kinone}|a colleague) (talks about|raves about|loves|recommends) the {p}
        the {p} (is|would be) (next|our plan|my favourite|on our list|first on our list|what we came for)
        (we|i) (chose|picked|decided on|settled on) the {p}
        (we're|i'm) (curious about|interested in|looking forward to|excited about) the {p}
        """,
    "place_day": """
        (we|i) (would love|would like|want|plan) to (see|visit) the {p} on {d}
        (we're|we are|i'm|i am) (going to|visiting|planning to see) the {p} on {d}
        (my|our) (kids|children|parents) (want|would like|would love) to see the {p} on {d}
        on {d} (we|i) (want|would like|plan) to (see|visit) the {p}
        {d} is our day for the {p}
        the {p} on {d}
        (we have|i have) (a date|a meeting|plans) at the {p} on {d}
        {wewant} {visit} the {p} {on_d}
        {on_d} {wewant} {visit} the {p}
        the {p} is our plan for {d}
        {d}(: |, | means |, it's )the {p}
        """,
    "day": """
        (we're|we are|i'm|i am) coming on {d}
        (my|our) (train|bus|flight|ship) (lands|arrives|gets in|gets here) [on] {d}
        (we|i) (only have|have only|just have) {d}
        (we'll|we will|i'll|i will) be (here|in town|around) on {d}
        it will be [a] {d}
        (we're|i'm|we are|i am) free on {d}
        my day off is {d}
        (we|i) (arrive|land|get there) on {d}
        (our|the) (trip|visit|school trip|outing) is on {d}
        {d} would be our day
        {d} is (all we have|our only day|my day off|the only day we can come|when we come)
        (we've|we have|i've|i have) (got |)(only |just |)(a |the |)(whole |)(day|time) (off|free|to kill|to spare|\
            left) on {d}
        it's (my birthday|our anniversary|my son's birthday|a day off for us) on {d}
        (the weather looks good for|we picked|we are thinking of|our plan is for) {d}
        (my {kinone}|my friend|our visitor|an old friend) (comes|arrives|visits us|is in town|is free) on {d}
        (on|) {d} (we have|i have|there is) (nothing to do|no school|time|a day off)
        """,
    "party": """
        (we are|we're|there are|it's) {party}
        (i'm|i am|we're|we are) coming with {party}
        (i|we) have {party} [with me|with us|in our group]
        our (group|party|family) is {party}
        (there will|there'll) be {party}
        we would be {party}
        (my|our) (group|crew|family|class|club|team) (has|counts|is|consists of) {party}
        (we'd be|we'll be|that makes|count us as|say) {party}
        (with me|along with me|travelling together) are {party}
        {are}
        {are}
        (as for us|in our group|in my party|in the family), {are}
        """,
    "party_place": """
        (we are|we're|it's) {party} (and want|and would like|wanting) to (see|visit) the {p}
        (i'm|i am|we are|we're) (organising|organizing|planning|preparing) a (trip|school trip|class trip|day out|visit|birthday|club outing) to the {p} (with|for) {party}
        (i'm|i am|we're|we are) (taking|bringing) {party} to the {p}
        {party} (would like|want) to (see|visit) the {p}
        (we|i) (want|would like|plan) to (go to|see|visit) the {p} with {party}
        (our|my) (class|school class|group|club|team|family|company) (is going|wants to go) to the {p}, {party}
        (our|my) (class|school class|group|club|team|family|company) of {party} (is going|wants to go) to the {p}
        the {p} for {party}
        {party} for the {p}
        {p}, {party}
        (we're|we are) (off|going|heading) to the {p}, {party}
        (we'd|i'd|we would|i would) like tickets for the {p}, {party}
        (imagine|say|suppose) {party} (visit|go to) the {p}
        {party} {fancying} the {p}
        {party} (at|for|in|into) the {p}
        the {p} with {party}
        {planto} {visit} the {p}, {party}
        (there's|there are|we're|we are) {party} and {fancying} the {p}
        our (club|class|team|choir|family|band|office), {party}, {wants} the {p}
        {planto} {visit} the {p}. {are}
        the {p}, {are}
        """,
    "kin_place": """
        {kin} are (off|going|heading) to the {p}
        {kin} (want|would like|would love|plan) to (see|visit|go to) the {p}
        {kin} are (at|in front of|standing outside) the {p}
        the {p} with {kin}
        {kin} {fancying} the {p}
        the {p} (for|with) {kin}
        {planto} {visit} the {p}(: |, | - ){kin}
        """,
    "places_day": """
        (we|i) (want|would like|plan|would love) to (see|visit) {ps} on {d}
        (we're|we are|i'm|i am) (going to|visiting) {ps} on {d}
        on {d} (we|i) (want|plan) to (see|visit) {ps}
        {ps} on {d}
        {d} is our day for {ps}
        """,
    "places": """
        (we|i) (want|would like|plan|would love) to (see|visit) {ps}
        (we're|we are|i'm|i am) (going to|planning to see|visiting) {ps}
        (my|our) (kids|children|friends) (want|would like) to see {ps}
        {ps}
        first {ps}
        (i have|we have|just) a question about {ps}
        """,
    "day_time": """
        i {ends} at {t} on {d}
        {d} i {ends} at {t}
        on {d} i {ends} at {t}
        {event} at {t} on {d}
        {event} {at_dt}
        on {d} {event} at {t}
        it (will|would) be {t} on {d} (before|when|by the time) (we get there|we are ready|my {kinone} gets here)
        we (won't|can't|will not) (be there|make it|get away|arrive) before {t} on {d}
        (we|i) (would|could|might|will|can) (come|be there|turn up|arrive|get there) {at_dt}
        {plan}, (like|say|around|about) {t} on {d}
        (we're|i'm|we are) (free|in the area|in town|around) {at_dt}
        {at_dt} (would suit us|is when we come|is our only chance|is when i have time)
        """,
    "start": """
        {at_o}
        {at_o}
        (we|i) (find|found) (ourselves|myself|) (at|near|by|close to) the {o}
        (my|our) {kinone} (waits|is waiting|is) (at|by|near) the {o}
        (suppose|say|imagine|let's say) (we|i) (start|set off|begin) (at|from) the {o}
        """,
}

# The questions after such a sentence: the total of a party, or something about both places.
ASKS = {
    "total": """
        [and] what (will|would|does) (it|that|this) cost [us|me|in total|altogether|all together]
        how much (is it|is that|is this|would that be|will that be|would it be) [in total|altogether|all together|for us|for all of us]
        what do (we|i) (pay|owe you|have to pay) [in total|altogether|for that]
        what's (the|our) (total|price|bill|total price|cost|sum|damage)
        how much (do we pay|do i pay|in total|altogether|will we pay|money is that|all in all)
        how much (is the entry|are the tickets|would tickets be|do tickets cost) [for us|in total]
        (cost|price|total|how much|total price|total please|price please)
        what (would|does|will) that come to
        (can|could) you (work that out|work it out|add that up|add it up)
        (tell me|i need to know|i'd like to know) the (total|price|cost)
        how much money do (we|i) need
        what is (it|that) (going to|gonna) cost [us|me]
        {total}
        {total}
        """,
    "settled": """
        {paying}{sep}{verdict}
        {paying}{sep}{verdict}
        (is|are|would|will) {m} (enough|be enough|do|cover it)
        {changeback} from {m}
        {changeback} (if|when) (i|we) pay with {m}
        """,
    "party": """
        how much is the {p} [for us|in total|altogether|for all of us]
        how much would the {p} be [for us|in total|altogether]
        what (does|would|will) the {p} cost [us|in total|altogether]
        what do (we|i) pay (at|for|to see|to visit) the {p} [in total]
        (price|total|tickets) for the {p}
        the {p}, how much [is that|in total]
        how much (to get into|to visit|to see) the {p}
        (we|i) want to see the {p}, (how much is it|what do we pay|what does it cost)
        {p} (total|price|how much)
        the {p}{sep}{total}
        {total} (at|for) the {p}
        {planto} {visit} the {p}{sep}{total}
        we {fancying} the {p}{sep}{total}
        """,
    "hours": """
        when are (they|both|the two) open
        (what are|tell me) the (opening hours|hours|opening times) of (both|the two)
        (opening hours|opening times|hours) (for|of) (both|each|the two)
        when do (they|both) open and close
        (opening hours|hours|opening times)
        """,
    "day": """
        when are (they|both|the two) open on {d}
        (what are|tell me) the (opening hours|hours|opening times) of (both|the two) on {d}
        are (they|both|the two) open on {d}
        will (they|both) be open on {d}
        (opening hours|opening times|hours) (for|of) (both|each|the two) on {d}
        on {d}, when are (they|both) open
        """,
    "closed_days": """
        on which days are (they|both) closed
        when are (they|both) closed
        """,
    "prices": """
        how much are (they|both|the two)
        how much do (they|both|the two) cost
        what do (they|both|the two) cost
        (prices|ticket prices|the prices) (of|for) (both|each|the two)
        what do (we|i) pay (for each|for both|there)
        """,
    "price": """
        (how much are|what are) (they|both|the two) for {c}
        what (do|would) {c} pay (for both|for each|there|at each)
        what does {a} pay (for both|for each|there)
        """,
    "bill": """
        (how much are|how much is it for) both for {party}
        what do {party} pay (for both|in total|altogether)
        (we are|there are) {party}, (what do we pay|how much is it) (for both|in total|altogether|together)
        how much (altogether|in total) for {party}
        (total|price) for {party}
        {party}, how much (for both|in total|altogether|together)
        """,
    "way": """
        how do (we|i) get (to both|to them|there)
        where are (they|both)
        which way to (both|each of them)
        """,
    "distance": """
        how far are (they|both)
        how long is the walk to (each|both)
        """,
    "open_then": """
        is the {p} [still] open [then|by then|at that time]
        (would|will|could|can) i still (make it into|get into|see|visit) the {p} [then]
        (would|will|can) we still (make it into|get into|see|visit) the {p} [then]
        will the {p} [still] be open [then|for us]
        {p} (still|) open [then]
        does the {p} (still|) let people in [then]
        {canwe} {enter} the {p} [then]
        (is that|would that be|will that be) (ok|fine|possible|a good time) for the {p}
        any chance (of|for) {visiting} the {p} [then]
        the {p}(, |: |? )(possible|still open|open|yes or no)
        """,
    "what_then": """
        what is [still] open [then|at that time]
        what (can|could) we still (see|visit|do) [then]
        (anything|something|which places|which attractions) [still] open [then]
        where (can|could) we [still] go [then]
        """,
    "from_there": """
        how (do|can) (we|i) (get|walk|go) to the {p} [from there]
        where is the {p} [from there]
        (which way|which path|how far|how many minutes) [is it] to the {p} [from there]
        (we|i) (want|need|would like|fancy) the {p} (first|next|now|){comma}{where}
        (we|i) (want|need|would like|fancy) the {p} (first|next|now|){comma}{howfar} [from there]
        the {p}{sep}{where}
        the {p}{sep}{howfar} [from there]
        (directions|way|route) to the {p}
        """,
}

# What a visitor wants to do, in place of the place where it is done.
PURPOSES = {
    "boat house": (
        "rent a boat",
        "hire a boat",
        "rent a rowing boat",
        "get a boat",
        "go boating",
        "take a boat out",
        "rent boats",
        "row on the lake",
        "go out on the lake in a boat",
        "have a boat trip",
        "do some rowing",
        "paddle about in a boat",
    ),
    "mini golf": (
        "play mini golf",
        "play a round of mini golf",
        "have a game of mini golf",
        "play crazy golf",
        "putt a few balls",
        "play some golf",
    ),
    "restaurant": (
        "have dinner at the restaurant",
        "have lunch at the restaurant",
        "eat at the restaurant",
        "dine at the restaurant",
        "have a proper meal at the restaurant",
        "celebrate at the restaurant",
    ),
    "cafe": (
        "have breakfast at the cafe",
        "have lunch at the cafe",
        "sit in the cafe",
        "drink something at the cafe",
        "have a piece of cake in the cafe",
        "rest at the cafe",
    ),
    "castle tower": (
        "climb the tower",
        "climb the castle tower",
        "go up the tower",
        "climb up the tower",
        "look down from the tower",
        "enjoy the view from the tower",
        "stand on top of the tower",
    ),
    "lockers": (
        "leave my bag",
        "leave our bags",
        "store our luggage",
        "leave my suitcase",
        "lock away our bags",
        "drop our backpacks",
        "leave my backpack",
        "store a bag",
        "leave our things",
        "deposit our bags",
        "get rid of my suitcase for a while",
        "put our heavy bags",
        "lock up my rucksack",
        "stow our luggage",
        "leave a heavy backpack",
    ),
    "cash machine": (
        "get cash",
        "withdraw money",
        "get some cash",
        "draw money",
        "get money out",
        "take out some money",
        "withdraw cash",
        "get banknotes",
        "get hold of some cash",
        "draw some euros",
        "get money from my account",
    ),
    "picnic area": (
        "have a picnic",
        "have our picnic",
        "eat our own sandwiches",
        "picnic",
        "eat the food we brought",
        "eat our packed lunch",
        "unpack our picnic",
        "eat what we brought along",
        "sit down with our picnic basket",
    ),
    "train station": (
        "catch the train",
        "catch our train",
        "get the train home",
        "take the train",
        "catch a train",
        "get on our train",
        "board the train",
        "travel home by train",
    ),
    "bus stop": (
        "catch the bus",
        "catch a bus",
        "get the bus",
        "take the bus home",
        "wait for the bus",
        "get on the bus",
        "meet the bus",
        "board our bus",
    ),
    "toilets": (
        "wash my hands",
        "go to the loo",
        "wash our hands",
        "go to the toilet",
        "change a nappy",
        "change the baby",
        "pee",
        "have a pee",
        "go for a wee",
        "use the toilet",
        "freshen up",
        "spend a penny",
        "wash the baby's hands",
        "change my little one",
        "powder my nose",
    ),
    "playground": (
        "let the kids play outside",
        "use the swings",
        "find swings and slides",
        "go on the swings",
        "go down a slide",
        "use the seesaw",
        "run about on the playground",
    ),
    "first aid post": (
        "get a plaster",
        "get a bandage",
        "have a cut looked at",
        "get first aid",
        "have a scratch bandaged",
        "get something for a blister",
        "get a sticking plaster",
        "have my blister looked at",
    ),
    "car park": (
        "find my car",
        "find our car again",
        "get back to our car",
        "fetch something from the car",
        "find the place where we parked",
    ),
}

# Questions that name a purpose, {u}.
PURPOSED = {
    "way": """
        where (can|could|do) (i|we) {u}
        (i|we) (want|need|would like|have) to {u}[, where is that|, where can i go|, where do we go|, which way]
        (is there|have you got|do you have) (somewhere|a place|anywhere) to {u}
        how do (i|we) get to (a place|somewhere) to {u}
        where (do|can) (people|visitors) {u}
        my (son|daughter|mother|wife|husband) (needs|wants) to {u}[, where|, where is that|, where can we go]
        (is it possible|would it be possible) to {u} (here|somewhere|around here)
        * where would it be possible for us to {u}
        {person} (needs|wants|has|would like) to {u}{sep}{where}
        where {canwe} {u}
        {know} where (i can|we can|one can) {u}
        {wewant} {u}{sep}{where}
        {person} (has to|must|urgently needs to|can't wait to) {u}{sep}(any ideas|which way|quick|where to)
        (i|we) (have to|must|really need to) {u}{sep}(any ideas|which way|quick|where to|where)
        {u}{sep}where
        """,
    "day": """
        when can (i|we) {u} on {d}
        (i|we) (want|would like|plan) to {u} on {d}, when (is it open|is that possible|can we come)
        on {d}, (when|from when to when|at what times) can (i|we) {u}
        from when to when can (i|we) {u} on {d}
        when {canwe} {u} {on_d}
        {wewant} {u} {on_d}{comma}(when is that possible|at what times|what are the hours)
        """,
    "is_open": """
        can (i|we|one) {u} on {d}
        is it possible to {u} on {d}
        on {d}, (can|could) (i|we) {u}
        (could|may) (i|we|the kids) {u} (this|next|on) {d}
        {canwe} {u} {on_d}
        {wewant} {u} {on_d}{comma}(is that possible|does that work|is it open)
        """,
    "is_open_at": """
        can (i|we) [still] {u} (on|this) {d} at {t}
        can (i|we) [still] {u} at {t} on {d}
        is it possible to {u} on {d} at {t}
        (i|we) (want|would like) to {u} [on] {d} at {t}, is that possible
        {canwe} [still] {u} {at_dt}
        {wewant} {u} {at_dt}{comma}(is that possible|does that work|is it open)
        i {ends} at {t} on {d}{comma}{canwe} still {u} [then]
        """,
    "hours": """
        when can (i|we|one) {u}
        at what times (can|could) (i|we) {u}
        when {canwe} {u}
        {wewant} {u}{comma}(when is that possible|at what times|what are the hours)
        """,
    "prices": """
        how much (is it|does it cost) to {u}
        what does it cost to {u}
        what (do|would) (i|we) pay to {u}
        {wewant} {u}{comma}(what does it cost|how much is that|what do we pay)
        {know} what it costs to {u}
        """,
    "price": """
        how much (is it|does it cost) for {c} to {u}
        what (do|would) {c} pay to {u}
        what does {a} pay to {u}
        """,
    "bill": """
        how much (is it|does it cost) for {party} to {u}
        what do {party} pay to {u}
        {party} (want|would like) to {u}, (how much is it|what does it cost|what do we pay)
        (we are|we're|there are) {party} and (want|would like) to {u}[, how much|, what does it cost]
        {party} {wantto} {u}{sep}{total}
        {total} for {party} to {u}
        {planto} {u}{sep}{party}{sep}{total}
        """,
}
