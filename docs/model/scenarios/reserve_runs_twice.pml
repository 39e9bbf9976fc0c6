/* Two buyers, one unit, and a client library that repeats reserve calls on its own, late. The winner may cancel. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_B
#define CANCEL_A 1
#define RESERVE_RUNS_TWICE
#include "../dropgate.pml"
