/* broker.pml: RocketMQ's side. It does not remember a verdict: a late COMMIT overrides an earlier ROLLBACK and, after an
   earlier COMMIT, stores the message again. What is in the order topic is delivered until it is acked. */

inline send_half(batch, candidates) {
  half_state[batch] = half_open; half_candidates[batch] = candidates
}
inline commit_half(batch) {
  half_state[batch] = half_ended; in_order_topic[batch] = 1
}
inline rollback_half(batch) {
  half_state[batch] = half_ended
}

#ifdef HALF_DISCARDED
/* The checks are used up: the first half message goes to the broker's discard topic, is never delivered, and nobody is told. */
proctype BrokerGivesUp() {
  if
  :: atomic { half_state[0] == half_open -> half_state[0] = half_discarded }
  :: skip
  fi
}
#endif
