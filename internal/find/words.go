package find

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// words splits a text at characters other than letters and digits, and at capitals inside words: listURLsOf_pod-2
// becomes list, urls, of, pod, 2.
func words(s string) []string {
	var all []string
	begin := -1
	last := ' '
	for i, r := range s {
		letter := unicode.IsLetter(r) || unicode.IsDigit(r)
		if begin >= 0 && (!letter || unicode.IsUpper(r) && (!unicode.IsUpper(last) || startsWord(s[i:]))) {
			all = append(all, strings.ToLower(s[begin:i]))
			begin = -1
		}
		if letter && begin < 0 {
			begin = i
		}
		last = r
	}
	if begin >= 0 {
		all = append(all, strings.ToLower(s[begin:]))
	}
	return all
}

// startsWord reports whether a new word begins at s, which is a capital after another capital. A word begins at the A
// of IPAddress, but not at the P. No word begins at the D of IDs, because the s is a plural.
func startsWord(s string) bool {
	_, n := utf8.DecodeRuneInString(s)
	next, m := utf8.DecodeRuneInString(s[n:])
	if !unicode.IsLower(next) {
		return false
	}
	after, _ := utf8.DecodeRuneInString(s[n+m:])
	return next != 's' || unicode.IsLower(after)
}

// stem returns the same text for most forms of an English word, such as singular and plural, or the forms of a verb.
// This text need not be a word.
func stem(w string) string {
	if len(w) <= 3 {
		return w
	}
	switch {
	case strings.HasSuffix(w, "ies") && len(w) > 4:
		w = w[:len(w)-3] + "y"
	case hasSuffix(w, "sses", "shes", "ches", "xes", "zes"):
		w = w[:len(w)-2]
	case strings.HasSuffix(w, "s") && !hasSuffix(w, "ss", "us", "is"):
		w = w[:len(w)-1]
	}
	for _, end := range []string{"ing", "ed"} {
		if rest, ok := strings.CutSuffix(w, end); ok && len(rest) > 2 && strings.ContainsAny(rest, "aeiouy") {
			w = rest
			break
		}
	}
	if rest, ok := strings.CutSuffix(w, "ion"); ok && len(rest) > 4 && hasSuffix(rest, "t", "s") {
		w = rest // creation becomes creat, as create does
	}
	if len(w) > 3 {
		w = strings.TrimSuffix(w, "e")
	}
	if n := len(w); n > 3 && w[n-1] == w[n-2] && w[n-1] != 's' {
		w = w[:n-1] // getting becomes get
	}
	return w
}

func hasSuffix(w string, ends ...string) bool {
	return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(w, end) })
}

// stems returns the stem of each word of a text.
func stems(text string) []string {
	all := words(text)
	for i, w := range all {
		all[i] = stem(w)
	}
	return all
}

func set(text string) map[string]bool {
	all := map[string]bool{}
	for _, w := range strings.Fields(text) {
		all[stem(w)] = true
	}
	return all
}

// stops are stems that occur in many questions and tell nothing about operations.
var stops = set(`a an the this that these those it its there here of in on at to for from by with within into as and or if
	is are was were be been being am do does did done has have had having can could may might must shall should will would
	i you we us they he she him them your our their his her who whom whose what which when where why how
	please want need like some any all each every given via than then so not no yes also more most other such only just
	about using use used`)

// afterVerb are words that can follow a verb at the beginning of a question, but not a noun.
var afterVerb = map[string]bool{"a": true, "an": true, "the": true, "my": true, "to": true, "on": true}

// asking and amounts recognize questions that request a read: the first word is in asking, or the second word is in
// amounts.
var (
	asking  = set("who whose what which when where is are was were does did has have")
	amounts = set("many much")
)

// synonyms maps each stem to the stems of other words for the same in tools. A synonym of two words, such as "shut
// down", is written as one.
var synonyms = func() map[string][]string {
	all := map[string][]string{}
	for group := range strings.FieldsFuncSeq(`
		email mail, message text sms dm chat, picture image photo screenshot, snapshot screenshot, folder directory
		employee staff, colleague member teammate user person assignee, people user member, customer client, supplier vendor contact
		bill invoice, meeting event appointment, password passphrase credential, wifi ssid wireless, disk volume storage
		machine instance server vm node host, launch run start execute begin, cancel delete abort, stop halt pause suspend shutdown terminate
		restart reboot reload, delete remove erase trash discard unassign, find search lookup query locate, assign give delegate
		ticket issue bug, task todo issue, close complete finish end resolve done, upload attach import post, download export save
		pull merge pr mr, author blame committer, follow watch subscribe watcher follower, like upvote vote star favorite favourite reaction
		thumb reaction emoji like, comment note reply remark, label tag, forum topic discussion thread, discuss topic discussion
		profit profitable revenue income earning, owe receivable debt outstanding unpaid, pay paid payment, buy purchase order
		cost price spend usage, spend expense transaction purchase payment, money balance credit fund, phone telephone call dial ring
		speech voice spoken audio sound, transcription transcribe transcript dictation, log output stdout console, weather forecast temperature
		place restaurant shop business nearby, address location coordinate geocode position, direction route navigation way, distance far
		website page url site web, navigate visit browse go open, click press tap, type enter input, slow performance speed fast latency
		error failure problem exception crash fault, alert alarm warning notification, chart graph plot diagram, draw generate render paint create
		hierarchy organization structure, company organization organisation business org, document doc paper file, spreadsheet sheet excel workbook
		row record entry, column field property, database db sql, query sql statement, summary overview digest report, setting configuration config preference option
		permission access right role, share public link, version release, deploy ship publish rollout, revert undo rollback restore
		history changelog revision log, copy duplicate clone fork, move transfer rename, split divide, combine merge join, approve accept confirm allow
		reject deny decline refuse, schedule cron timer plan, recurring repeat repeating subscription regular, environment env variable
		secret credential token key, container pod docker, repository repo project, remember memory observation entity fact knowledge
		newsletter broadcast campaign, subscriber audience contact recipient, unsubscribe suppress suppression optout, holiday leave vacation absence
		song track music, video clip movie film, hour opening schedule time, size capacity space, status state transition progress, sprint iteration
		checklist todo, check validate verify test lint, tick check mark complete, workspace team, worklog time, change edit update modify, write add create append
		make create add new, send post deliver, bar column, room channel, attachment file, schema structure, article post page, friend contact follower
		lock protect freeze, unlock unfreeze unprotect, block ban, hide archive, show display view, turn convert switch, machine device computer
		job task run, pipeline workflow build, login signin auth, user account, category group, theme style branding, stock share, product item
		discount coupon voucher promotion, refund chargeback reimburse, cart basket checkout, shipment delivery shipping parcel package
		incident outage, dashboard panel, trace span, rule policy, firewall security, dns domain hostname, certificate ssl tls cert, backup snapshot
		book reserve booking reservation, flight airline, hotel accommodation lodging, currency exchange rate, translate language, salary payroll wage
		candidate applicant, lead prospect, deal opportunity, survey questionnaire form, answer response, question ask, bookmark favorite save
		wiki knowledge article, draft unsent, reminder remind, mute silence, unread new, trash bin deleted, starred favorite, owner creator, deadline due
	`, func(r rune) bool { return r == ',' || r == '\n' }) {
		members := stems(group)
		for _, w := range members {
			for _, other := range members {
				if other != w && !slices.Contains(all[w], other) {
					all[w] = append(all[w], other)
				}
			}
		}
	}
	return all
}()

// selves are words for the person who asks. askers are words for the caller in APIs, and callers are words for the
// caller's account in APIs.
var (
	selves  = set("i me my mine myself whoami")
	askers  = stems("me my authenticated current")
	callers = stems("whoami user account profile identity")
)

// act is a set of acts of an operation, with one bit for each act.
type act uint8

const (
	actCreate act = 1 << iota
	actList
	actGet
	actUpdate
	actDelete
	actOther // another act that is not a read

	reads = actList | actGet
)

// verbs maps stems to acts.
var verbs = func() map[string]act {
	all := map[string]act{}
	for a, text := range map[act]string{
		actCreate:             "create add new make open insert register post upload send start generate draw plot attach write invite schedule buy",
		actList:               "list enumerate browse index",
		actGet:                "get read fetch retrieve describe download view give tell",
		reads:                 "show find search query display lookup check see",
		actUpdate:             "update edit change modify set rename replace patch alter move mark",
		actCreate | actUpdate: "put upsert",
		actDelete:             "delete remove destroy drop erase",
	} {
		for _, w := range stems(text) {
			all[w] = a
		}
	}
	return all
}()
