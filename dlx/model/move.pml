/* The dead-letter move, for the spin model checker (make model).
 *
 * One source queue with K dead letters, T target queues. What each queue's Raft log has
 * committed is the state; everything else is nondeterministic:
 *  - leaders change and two lead at once: any proposal may be made by anybody at any time,
 *    from any state that was once committed, and may be lost or committed late;
 *  - a transfer may be delivered any number of times, in any order, or never;
 *  - an answer may be lost, or tell any watermark that was once true;
 *  - routes change: each decision goes to any nonempty set of the targets that the
 *    decider's catalog copy has, which may be old;
 *    A route plan (docs/adr/0010-route-plan.md) is a decision that comes with the death;
 *  - any letter that is under way may be withdrawn from any of its targets, at any time and
 *    by anybody, also by one leader while another still sends it;
 *  - targets are deleted in mid-move, and forgotten after it.
 *
 * It is the protocol of docs/adr/0004 and fsm/apply.go: a letter is routed once, each
 * (source, target) pair has a dense sequence, the target takes sequence watermark + 1 only,
 * the source drops a letter when every target has it, and a closed target tells its final
 * watermark. A withdrawal takes the sequence instead of the letter; every answer of the
 * target says which sequences it did not take, as far as the source's log has not recorded
 * that. A letter without a leg that was withdrawn somewhere is decided on anew, for targets
 * that do not have it. -DFAULT=n leaves one rule out; spin must then find an error:
 *  1 the target takes what it was sent, without looking at the sequence
 *  2 the source counts what it has sent, not what was committed
 *  3 a closed target is recorded without its watermark
 *  4 routes of an older catalog than the last clean-up are taken
 *  5 the target takes what lies behind a gap
 *  6 a closed target may go before the source has recorded it
 *  7 an answer to a repeated transfer does not say what was withdrawn
 *  8 the source gives a letter up when it asks for the withdrawal, not when that is answered
 *  9 the target forgets a withdrawal once it is answered, recorded or not
 * 10 a letter that is decided on anew goes to a target that has taken it
 * 11 a closed target tells its watermark without what was withdrawn
 */
#ifndef FAULT
#define FAULT 0
#endif
#ifndef K
#define K 2 /* letters */
#endif
#ifndef T
#define T 2 /* targets */
#endif
#ifndef W
#define W 1 /* withdrawals */
#endif
#define S (K + W) /* sequences of a target: each letter once, and again when it was withdrawn */
/* The catalog: a target that left it never comes back. rev counts the changes. */
byte rev;
bool deleted[T];   /* not in the catalog any more */
byte leftAt[T];    /* revision at which it left */

/* The source's log. */
#define unrouted 0
#define routed 1
#define gone 2
byte state[K];
byte leg[K * T];   /* sequence under way to the target, 0 none */
bool got[K * T];   /* the target is known to have taken it */
bool anew[K];      /* withdrawn somewhere since it was routed: decide again */
byte next[T];      /* next sequence, 0 if the target is not known */
bool over[T];      /* recorded as closed */
byte floor;        /* revision of the newest clean-up */

/* What was ever routed under a number: transfers in flight, which stay there. */
byte sent[T * (S + 1)]; /* letter + 1 */

/* The targets' logs. */
byte water[T];
bool closed[T];
bool removed[T];   /* its group is wiped */
byte copies[K * T];/* how often the target took the letter */
bool without[T * (S + 1)]; /* the sequence was withdrawn, as the target remembers it */
byte left = W;     /* withdrawals that may still happen */

#define LEG(k, t) leg[(k) * T + (t)]
#define COPIES(k, t) copies[(k) * T + (t)]
#define GOT(k, t) got[(k) * T + (t)]
#define SENT(t, s) sent[(t) * (S + 1) + (s)]
#define WITHOUT(t, s) without[(t) * (S + 1) + (s)]

/* finish drops a routed letter without a leg, or puts it back. */
inline finish(k) {
	bool any, taken;
	byte u;
	any = false; taken = false; u = 0;
	do
	:: u < T -> any = any || LEG(k, u) > 0; taken = taken || GOT(k, u); u++
	:: else -> break
	od;
	if
	:: state[k] == routed && !any && taken && !anew[k] -> state[k] = gone
	:: state[k] == routed && !any && !(taken && !anew[k]) -> state[k] = unrouted
	:: else
	fi;
	if
	:: !any -> anew[k] = false
	:: else
	fi;
	any = false; taken = false; u = 0
}

/* A Route command: letter k to the targets of set (bits), decided at catalog revision at. */
inline route(k, set, at) {
	bool ok, had;
	byte t;
	ok = state[k] == unrouted; had = false; t = 0;
	do
	:: t < T ->
		had = had || GOT(k, t);
		/* An unknown target is admitted only by a catalog as new as the last clean-up. */
		ok = ok && !((set & (1 << t)) && next[t] == 0 && FAULT != 4 && at < floor);
		t++
	:: else -> break
	od;
	if
	:: ok ->
		t = 0;
		do
		:: t < T ->
			if
			:: (set & (1 << t)) && !over[t] && (!GOT(k, t) || FAULT == 10) ->
				if
				:: next[t] == 0 -> next[t] = 1
				:: else
				fi;
				LEG(k, t) = next[t];
				SENT(t, next[t]) = k + 1;
				next[t]++;
				state[k] = routed
			:: else
			fi;
			t++
		:: else -> break
		od;
		/* Nobody new, and somebody has it. */
		if
		:: state[k] == unrouted && had -> state[k] = gone
		:: else
		fi
	:: else
	fi
}

/* What the log committed as TransferDone or TargetGone: legs up to seq have ended, and those
 * that the target withdrew brought nothing. blind leaves that out. */
inline done(t, seq, blind) {
	byte k;
	k = 0;
	do
	:: k < K ->
		if
		:: LEG(k, t) > 0 && LEG(k, t) <= seq ->
			if
			:: WITHOUT(t, LEG(k, t)) && !(blind) -> anew[k] = true
			:: else -> GOT(k, t) = true
			fi;
			LEG(k, t) = 0;
			finish(k)
		:: else
		fi;
		k++
	:: else -> break
	od
}

/* The source's leaders: decide on letters, from any catalog copy that is not older than
 * what the log has seen, or older if this leader is deposed. */
active proctype Router() {
	byte k, set, at, i;
	bool some;
	do
	:: atomic {
		select(k : 0 .. K - 1);
		select(at : 0 .. rev);
		/* the targets of that copy, any nonempty part of them */
		select(set : 1 .. (1 << T) - 1);
		i = 0; some = true;
		do
		:: i < T ->
			/* in the copy of revision at: it left later, or not at all */
			some = some && (!(set & (1 << i)) || !deleted[i] || leftAt[i] > at);
			i++
		:: else -> break
		od;
		if
		:: some && state[k] == unrouted -> route(k, set, at)
		:: else
		fi;
		k = 0; set = 0; at = 0; i = 0; some = false
	}
	od
}

/* A target's leaders: any transfer that was ever sent, at any time. */
active [T] proctype Target() {
	byte t = _pid - 1;
	byte s, i;
	bool forget;
	do
	:: atomic {
		select(s : 1 .. S);
		if
		:: SENT(t, s) > 0 && !closed[t] && (s == water[t] + 1 || FAULT == 1 || FAULT == 5 && s > water[t]) ->
			COPIES(SENT(t, s) - 1, t)++;
			assert(COPIES(SENT(t, s) - 1, t) == 1); /* never twice */
			water[t] = s
		:: else /* a repeat, or behind a gap */
		fi;
		s = 0
	}
	/* A withdrawal instead of the letter, by a leader that has it under way. */
	:: atomic {
		left > 0 && !closed[t] && SENT(t, water[t] + 1) > 0 && LEG(SENT(t, water[t] + 1) - 1, t) == water[t] + 1 ->
		left--;
		if
		:: FAULT == 8 ->
			i = SENT(t, water[t] + 1) - 1;
			anew[i] = true;
			LEG(i, t) = 0;
			finish(i);
			i = 0
		:: else ->
			water[t]++;
			WITHOUT(t, water[t]) = true
		fi
	}
	/* The target forgets a withdrawal that the source's log has recorded. */
	:: atomic {
		select(s : 1 .. S);
		if
		:: s <= water[t] && WITHOUT(t, s) ->
			i = 0; forget = true;
			do
			:: i < K -> forget = forget && (LEG(i, t) == 0 || LEG(i, t) > s); i++
			:: else -> break
			od;
			if
			:: forget || FAULT == 9 -> WITHOUT(t, s) = false
			:: else
			fi;
			i = 0; forget = false
		:: else
		fi;
		s = 0
	}
	/* The answer: any watermark that was once committed reaches some leader of the
	 * source, which records it. */
	:: atomic {
		select(s : 1 .. S);
		if
		:: (s <= water[t] || FAULT == 2 && SENT(t, s) > 0) && !over[t] -> done(t, s, FAULT == 7)
		:: else
		fi;
		s = 0
	}
	/* The end: closing fixes the watermark. The source must record it before the group goes. */
	:: atomic {
		deleted[t] && !closed[t] -> closed[t] = true
	}
	:: atomic {
		closed[t] && !over[t] && (!removed[t] || FAULT == 6) ->
		if
		:: FAULT == 3 -> s = 0
		:: FAULT == 6 && removed[t] -> s = 0
		:: else -> s = water[t]
		fi;
		done(t, s, FAULT == 11);
		over[t] = true;
		if
		:: next[t] == 0 -> next[t] = 1
		:: else
		fi;
		s = 0;
		do
		:: s < K ->
			if
			:: LEG(s, t) > 0 -> LEG(s, t) = 0; finish(s)
			:: else
			fi;
			s++
		:: else -> break
		od;
		s = 0
	}
	:: atomic {
		closed[t] && !removed[t] && (over[t] || FAULT == 6) -> removed[t] = true
	}
	/* The source forgets it, when a catalog copy at least as new as its leaving says so. */
	:: atomic {
		over[t] && removed[t] && next[t] > 0 ->
		next[t] = 0; over[t] = false; floor = rev
	}
	od
}

/* Users delete targets, all but one. */
active proctype Users() {
	byte t = 1;
	do
	:: atomic { t < T && !deleted[t] -> deleted[t] = true; rev++; leftAt[t] = rev; t++ }
	:: t >= T -> break
	od
}

/* A letter that is gone has come somewhere; one that is under way to a target is not
 * waited for in vain. */
active proctype Checker() {
	byte k, t;
	bool there;
	do
	:: atomic {
		k = 0;
		do
		:: k < K ->
			there = false; t = 0;
			do
			:: t < T ->
				there = there || COPIES(k, t) > 0;
				/* a leg to a target that can never take it nor tell its end */
				assert(LEG(k, t) == 0 || !removed[t] || FAULT == 6);
				/* who is thought to have it has it */
				assert(!GOT(k, t) || COPIES(k, t) > 0);
				/* a letter that is decided on anew is nowhere but where it is known to be */
				assert(state[k] != unrouted || COPIES(k, t) == 0 || GOT(k, t));
				t++
			:: else -> break
			od;
			assert(state[k] != gone || there); /* never lost */
			k++
		:: else -> break
		od;
		k = 0; t = 0; there = false
	}
	od
}
