/* A and B share a batch for one unit, so one of them loses; B asks again with the same key in another batch. The
   winner may cancel. */
#define ATTEMPTS 2
#define ASKS_0 A_AND_B
#define ASKS_1 JUST_B
#define RETRY_OF_FIRST
#define CANCEL_A 1
#include "../dropgate.pml"
