/* One reservation and its keyed retry; the broker may give up checking the first half message for good. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define RETRY_OF_FIRST
#define HALF_DISCARDED
#include "../dropgate.pml"
