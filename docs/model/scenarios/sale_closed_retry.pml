/* The operator closes the sale, and plans a change, while a keyed retry is under way. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define RETRY_OF_FIRST
#define PLANNED_CHANGE
#define CLOSES_SALE
#include "../dropgate.pml"
