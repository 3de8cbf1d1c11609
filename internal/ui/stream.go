package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/orchestrator"
)

// Kinds of messages of a stream, as server-sent events name them.
const (
	// MessageChange: the snapshot changed; the data is a Latest.
	MessageChange = "change"
	// MessageEvent: an event was journalled; the data is an orchestrator.Event.
	MessageEvent = "journal"
	// MessageReset: events since the last one that was received are no longer kept, or
	// the journal began again; the data is a Reset.
	MessageReset = "reset"
	// MessageEnd: the stream ends and must not be opened again: the login has ended.
	MessageEnd = "end"
)

// Latest says which generation is current.
type Latest struct {
	Generation uint64    `json:"generation"`
	AsOf       time.Time `json:"as_of"`
	Stale      string    `json:"stale"`
	// Problems is how many things need attention.
	Problems int `json:"problems"`
}

// Reset says which events can be asked for.
type Reset struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// Times of a stream.
const (
	streamBeat  = 15 * time.Second // proxies keep connections that say something
	streamWrite = 10 * time.Second // a viewer that reads nothing for longer is left
	streamRetry = 2 * time.Second  // what browsers wait for before they connect again
)

// streams serves the stream of one cluster until ctx ends.
func (s *Server) streams(ctx context.Context) http.HandlerFunc {
	open := make(chan struct{}, maxStreams)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case open <- struct{}{}:
			defer func() { <-open }()
		default:
			w.Header().Set("Retry-After", "30")
			s.fail(w, fmt.Errorf("%w: %d streams are open", ErrTooMany, maxStreams))
			return
		}
		q, err := EventsQuery(r)
		var fleet *Fleet
		if err == nil {
			fleet, err = ViewerOf(r.Context()).Fleet(r.Context(), r.PathValue("cluster"))
		}
		var first *Snapshot
		if err == nil {
			first, err = fleet.Snapshot(r.Context())
		}
		if err != nil {
			s.fail(w, err)
			return
		}
		running, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		st := &stream{w: w, control: http.NewResponseController(w), query: q, seq: first.LastSeq}
		if err = st.begin(lastEventID(r), first); err == nil {
			err = st.run(running, fleet, ViewerOf(r.Context()))
		}
		s.o.Log.Trace("a stream ended", "error", err)
	}
}

// lastEventID is the id that the viewer received last; empty: it begins.
func lastEventID(r *http.Request) string {
	return strings.TrimSpace(r.Header.Get("Last-Event-ID"))
}

// stream is one viewer's.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	query   EventQuery
	seq     uint64 // of the last event that was sent, or passed over
}

// begin sends the header; last is the id that the viewer received last.
func (st *stream) begin(last string, now *Snapshot) error {
	st.w.Header().Set("Content-Type", "text/event-stream")
	st.w.Header().Set("X-Accel-Buffering", "no")
	if err := st.control.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if err := st.write(fmt.Sprintf("retry: %d\n\n", streamRetry.Milliseconds())); err != nil || last == "" {
		return err
	}
	seq, err := strconv.ParseUint(last, 10, 64)
	oldest := now.LastSeq + 1
	if len(now.Journal) > 0 {
		oldest = now.Journal[0].Seq
	}
	if err != nil || seq > now.LastSeq || seq+1 < oldest {
		return st.send(MessageReset, Reset{First: oldest, Last: now.LastSeq})
	}
	st.seq = seq
	return nil
}

// run sends changes and events until ctx ends, the viewer leaves or may no longer see
// the cluster.
func (st *stream) run(ctx context.Context, fleet *Fleet, viewer *Viewer) error {
	snapshots := make(chan *Snapshot, 1)
	denied, ended := make(chan error, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); <-ended }()
	go func() {
		defer close(ended)
		err := fleet.Watch(ctx, func(s *Snapshot) {
			select { // the newest one counts
			case <-snapshots:
			default:
			}
			snapshots <- s
		})
		if ctx.Err() == nil {
			denied <- err
		}
	}()
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case s := <-snapshots:
			err = st.snapshot(s)
		case err = <-denied:
			return errors.Join(err, st.send(MessageEnd, apiError{err.Error()}))
		case <-beat.C:
			if err = viewer.valid(ctx, fleet); err != nil {
				if errors.Is(err, ErrLogin) || statusOf(err) == http.StatusForbidden {
					return errors.Join(err, st.send(MessageEnd, apiError{err.Error()}))
				}
				err = nil // Consul is away: what was known stays
			}
			if err == nil {
				err = st.write(": alive\n\n")
			}
		}
		if err != nil {
			return err
		}
	}
}

// snapshot sends what is new.
func (st *stream) snapshot(s *Snapshot) error {
	if s.LastSeq < st.seq { // the cluster was deleted and begins again
		st.seq = s.LastSeq
		if err := st.send(MessageReset, Reset{First: s.LastSeq + 1, Last: s.LastSeq}); err != nil {
			return err
		}
	}
	for _, e := range s.newer(st.seq) {
		st.seq = e.Seq
		if st.query.Matches(e) {
			if err := st.send(MessageEvent, e); err != nil {
				return err
			}
		}
	}
	return st.send(MessageChange, Latest{Generation: s.Generation, AsOf: s.AsOf.UTC(), Stale: s.Stale, Problems: s.problems})
}

// newer are the events after number seq.
func (s *Snapshot) newer(seq uint64) []orchestrator.Event {
	for i, e := range s.Journal {
		if e.Seq > seq {
			return s.Journal[i:]
		}
	}
	return nil
}

func (st *stream) send(kind string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return st.write(fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", st.seq, kind, data))
}

// write sends text at once. A viewer that does not read is left.
func (st *stream) write(text string) error {
	if err := st.control.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil {
		return err
	}
	if _, err := st.w.Write([]byte(text)); err != nil {
		return err
	}
	return st.control.Flush()
}
