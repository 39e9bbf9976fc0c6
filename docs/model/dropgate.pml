/* dropgate.pml: the whole model. A scenario file sets its constants and includes this one. Read README.md first.

   Granularity: one atomic block is one Lua call, one SQL transaction, or one broker call. Between two of them anything may
   happen. The last step of a process sets its variables back, only so that equal situations count as one state.
   d_step inside an atomic block changes nothing but the speed. `true;` before an `if` inside an option is not noise: spin
   joins an `if` that begins an option with the outer one, and its `else` would then never be taken. */

#include "words.pml"
#include "state.pml"
#ifdef DEADLINE_FROM_MESSAGE_TIME
byte half_sent_epoch[ATTEMPTS];
#endif
#include "invariants.pml"
#include "redis.pml"
#include "broker.pml"
#include "sql.pml"
#include "storefront.pml"
#include "api.pml"
#include "checkback.pml"
#include "consumer.pml"
#include "ending.pml"
#include "money.pml"
#include "adjustments.pml"
#include "faults.pml"
#include "leader.pml"
#include "monitor.pml"

init {
  atomic {
#ifdef B_HAS_THE_UNIT
    sale_available--; slot_available--;
    order_row[RESERVATION_B] = awaiting_payment; order_bought[BUYER_OF(RESERVATION_B)] = 1;
    slot_record[RESERVATION_B] = confirmed; slot_record_batch[RESERVATION_B] = LOADED_BY_NOBODY;
    slot_bought[BUYER_OF(RESERVATION_B)] = 1;
#endif
    run Api(0);
#if ATTEMPTS > 1
    run Api(1);
#endif
#if ATTEMPTS > 2
    run Api(2);
#endif
    run CheckBack();
#if CHECKERS > 1
    run CheckBack();
#endif
    run OrderWorker();
#if WORKERS > 1
    run OrderWorker();
#endif
    run ReleasePending();
    run Leader();
#if LEADERS > 1
    run Leader();
#endif
#ifdef CANCEL_A
    run Ending(RESERVATION_A);
#if CANCEL_A > 1
    run Ending(RESERVATION_A);
#endif
#endif
#ifdef CANCEL_B
    run Ending(RESERVATION_B);
#endif
#ifdef TIME_PASSES
    run Clock();
#endif
#if REDIS_LOSSES > 0
    run RedisIsLost();
#endif
#ifdef REDIS_GOES_AWAY
    run RedisGoesAway();
#endif
#ifdef PLANNED_CHANGE
    run OperatorPlansChange();
#endif
#ifdef FALSE_ALARM
    run ReportsFalseAlarm();
#endif
#ifdef CLOSES_SALE
    run OperatorClosesSale();
#endif
#ifdef SQL_LOSES_A_UNIT
    run UnitTakenByHand();
#endif
#ifdef HALF_DISCARDED
    run BrokerGivesUp();
#ifndef WITHOUT_DISCARDED_LOOP
    run DiscardedChecks();
#endif
#endif
#ifdef ASKS_GET
    run GetsReservation();
#endif
#if PAYMENTS > 0
    run PaymentArrives(0);
#if PAYMENTS > 1
    run PaymentArrives(1);
#endif
    run PaymentsWaiting();
#ifdef REFUNDS
    run Refunds();
#if REFUNDS > 1
    run Refunds();
#endif
#endif
#endif
#if defined(ADJUST_UP) || defined(ADJUST_DOWN)
    run Adjuster();
#ifdef TWO_ADJUSTERS
    run Adjuster();
#endif
#endif
    run Monitor();
  }
}
